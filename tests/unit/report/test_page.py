"""The page is one file with all of a report in it: verdict, areas, failures, margins, curves, timelines, faults."""

import re
from html.parser import HTMLParser

import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, page, timelines
from ipu_conformance.report.results import MOST_OF_A_NAME, Result, stem_of
from tests.unit.report import journals
from tests.unit.report.journals import CASES, entries, failed, passed

CURVE = {"metric": "accuracy", "passed": False, "values": [0.5, 0.75, 0.95], "low": [0.4, 0.6, 0.8],
         "mean": [0.5, 0.7, 0.85], "high": [0.6, 0.8, 0.9]}  # fmt: skip
TIMELINE = {
    "framework": "poptorch",
    "slots": [
        [0, 0, 0, 0, 0, "forward"],
        [1, 0, 1, 1, 0, "forward"],
        [1, 0, 0, 0, 1, "forward"],
        [2, 0, 1, 1, 0, "backward"],
        [3, 0, 0, 0, -1, "update"],
    ],
    "memory": [{"ipu": 0, "weights": 2048, "peak": 3 * 2**20}, {"ipu": 1, "weights": 4096, "peak": 5 * 2**20}],
}
RESULTS = [
    passed(CASES[0], margin={"used": 0.25, "what": "the weights", "checks": 3}),
    failed(CASES[1], margin={"used": 3.5, "what": "the <loss>", "checks": 2}),
    failed(CASES[2], sentence="the loss of step 1, replica 0 differs: actual 2.5, expected 1.25."),
    passed(CASES[3], timelines=(TIMELINE,)),
    Result(CASES[4], "skipped", 0.0, sentence="needs 16 IPUs, the target offers 8"),
    passed(CASES[5], curves=(CURVE,), graphs=('{"ops": []}\n',)),
    passed(CASES[6]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a report that has a little of everything."""
    place = tmp_path_factory.mktemp("report")
    report_folder.write(place, journals.write(place, entries(RESULTS)))
    return place


@pytest.fixture(scope="module")
def text(folder):
    """The page."""
    return (folder / "index.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects text by section and checks that elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.sections, self.links, self.names = [], {"": ""}, [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names.add(values.get("id"))
        self.links += [values[name] for name in ("href", "src") if name in values]
        if tag == "h2":
            self.sections[values["id"]] = ""
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.sections[list(self.sections)[-1]] += data


@pytest.fixture(scope="module")
def read(text):
    """What a reader without scripts sees."""
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_needs_no_network(folder, read):
    """Links lead to the page's own sections and to files of the folder that exist."""
    files = [link for link in read.links if not link.startswith("#")]

    assert files
    assert [link for link in files if not (folder / link).is_file()] == []
    within = [link[1:] for link in read.links if link.startswith("#")]
    assert within == ["cause-1", *(name for name, _ in page.SECTIONS)]
    assert [name for name in within if name not in read.names] == []


def test_every_section_is_there_in_order(read):
    """As the table of contents has them."""
    assert [name for name in read.sections if name] == [name for name, _ in page.SECTIONS]


def test_the_verdict_comes_first_with_its_reasons(read):
    """And what it means, what went wrong by cause, and what it rests on."""
    assert "NOT QUALIFIED" in read.sections[""]
    assert "The device does not do what the specification says: 2 of 7 cases failed." in read.sections[""]
    assert re.search(r"2the loss differsstep 0, replica 2poptorch", read.sections[""])
    assert f"{CASES[1]} failed: the loss of step 0, replica 2 differs" in read.sections[""]
    assert "1 of 2 passed for these frameworks" in read.sections["rests"]
    assert "serial: A-17" in read.sections["rests"]


def test_failures_are_grouped_by_cause_with_sentence_place_and_command(read):
    """Two cases whose sentences differ by place and numbers have one cause."""
    shown = read.sections["failures"]

    assert "the loss differs (2)" in shown
    assert "place: step 0, replica 2" in shown
    assert f"ipu-conformance case '{CASES[1]}'" in shown


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        (
            "the gradient of input 1 of conv([2, 5] and [3], pad=((1, 2), (3,)), mode=VALID) differs at [0]: actual 1",
            "conv",
        ),
        (
            "the gradient of input 0 of abs([4]) is -0.5 at [0, 3] where 1.0 to 1.5 is expected, allowed 0 (K=3)",
            "abs",
        ),
    ],
    ids=["differs", "beyond"],
)
def test_one_cause_has_one_name(sentence, kind):
    """Neither the arguments of a call nor the values tell causes apart."""
    assert failed(CASES[5], sentence).kind_of_failure == f"the gradient of input # of {kind} differs"


def test_one_wrong_value_differs():
    """However the check says so."""
    assert failed(CASES[5], "the weight is 3.5 where 4.0 is expected.").kind_of_failure == "a weight differs"


def test_a_sentence_of_brackets_does_not_stall():
    """A device's words are nobody's to trust."""
    assert failed(CASES[5], "f(" * 200_000).kind_of_failure.startswith("f(f(")


def test_many_causes_are_folded_away(tmp_path):
    """The head of the page stays short; all are below."""
    cases = [f"ops/test_ops_ipu.py::test_forward[paddle-{number}]" for number in range(page.MOST_CAUSES + 3)]
    results = [
        failed(case, f"the output of op_{chr(97 + number)} differs: actual 1") for number, case in enumerate(cases)
    ]
    report_folder.write(tmp_path, journals.write(tmp_path, entries(results, planned=cases)))
    shown = (tmp_path / "index.html").read_text(encoding="utf-8")

    assert "<summary>3 more causes, of 3 failures</summary>" in shown
    assert shown.count('<a href="#cause-') == len(cases)


def test_a_device_that_is_wrong_on_purpose_is_said_first(tmp_path):
    """Whoever receives the page does not take it for the report of a device."""
    environment = {**journals.ENVIRONMENT, "fault": "update-halved"}
    report_folder.write(tmp_path, journals.write(tmp_path, entries(RESULTS, environment=environment)))

    assert "The device was wrong on purpose (fault update-halved), which says nothing about any other: 2 of 7 " in (
        tmp_path / "index.html"
    ).read_text(encoding="utf-8")


def test_the_ipus_that_a_case_may_use_are_said(tmp_path):
    """Where the command line allows fewer than there are."""
    report_folder.write(tmp_path, journals.write(tmp_path, entries(RESULTS, count=4)))

    assert "8 IPUs, of which a case may use 4; serial" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_what_was_skipped_is_counted_by_reason(read):
    """With how many of them are mandatory."""
    assert re.search(r"needs 16 IPUs, the target offers 8\s*1\s*0", read.sections["skipped"])


def test_margins_are_distributions(read, text):
    """A column a tenth of the tolerance, one beyond it, and the tightest by name."""
    figures = {each["framework"]: each for each in page.histograms(RESULTS)}

    assert [column["height"] for column in figures["paddle"]["columns"]] == [0, 0, 100, *[0] * 8]
    assert [column["height"] for column in figures["poptorch"]["columns"]] == [*[0] * 10, 100]
    assert "350%" in read.sections["margins"]
    assert "20 to 30 %: 1 case<" in text
    assert "10 to 20 %: 0 cases<" in text
    assert "An op that rounds once is allowed just one rounding" in read.sections["margins"]
    assert "the &lt;loss&gt;" in text


def test_a_curve_is_drawn_in_its_band(read, text):
    """The band goes from the least to the most allowed value of each point and back."""
    (band,) = re.findall(r'class="band" points="([^"]*)"', text)

    assert len(band.split()) == 6
    assert "outside: accuracy" in read.sections["curves"]
    assert "3 points" in read.sections["curves"]
    assert "point 3: 0.95" in text


def test_a_timeline_has_a_row_an_ipu_and_its_memory(read, folder):
    """It is a trace for Perfetto, too."""
    record = report_folder.recorded(journal.read(folder / "journal.jsonl").entries)
    (figure,) = timelines.drawn(record)

    assert [ipu for ipu, _ in figure["ipus"]] == [0, 1]
    assert [slot["kind"] for slot in figure["slots"]] == ["forward", "forward", "forward", "backward", "update"]
    assert [slot["label"] for slot in figure["slots"]] == ["0", "0", "1", "0", ""]
    assert figure["memory"] == [
        {"ipu": 0, "sizes": ["2.0 KiB", "3.0 MiB"]},
        {"ipu": 1, "sizes": ["4.0 KiB", "5.0 MiB"]},
    ]
    assert "5.0 MiB" in read.sections["timelines"]
    assert (folder / "traces" / figure["file"]).is_file()


def test_dumps_of_the_ir_are_files(folder):
    """As the checks had them."""
    (path,) = (folder / "ir").iterdir()

    assert path.name == "ops-test-ops-ipu-py-test-forward-poptorch-softmax-softmax-float32-drawn.json"
    assert path.read_text() == '{"ops": []}\n'


def test_of_many_timelines_a_few_are_chosen():
    """One for each number of IPUs, the most first: all of workloads, and at most three others of a framework."""

    def timeline(ipus, **named):
        return {"framework": "paddle", "slots": [[0, 0, ipu, 0, 0, "forward"] for ipu in range(ipus)], **named}

    results = {f"{number}-{ipus}": passed(f"{number}-{ipus}", timelines=(timeline(ipus),))
               for number in range(2) for ipus in (2, 5, 3, 4)}  # fmt: skip
    results.update(
        (case, passed(case, timelines=(timeline(ipus, workload=workload),)))
        for case, workload, ipus in [("z", "digits", 2), ("y", "digits", 1), ("x", "digits", 1), ("w", "pictures", 1)]
    )
    record = report_folder.recorded(entries([]))._replace(results=results)

    assert [result.case for result, _ in timelines.chosen(record)] == ["z", "w", "x", "0-5", "0-4", "0-3"]


def test_no_two_cases_share_a_file():
    """However long what they have in common is."""
    cases = [f"tensorflow/training/test_a_workload_ipu.py::test_{'long_' * 30}[{way}]" for way in ("one", "two")]
    stems = [stem_of(case) for case in cases]

    assert len(set(stems)) == 2
    assert max(map(len, stems)) == MOST_OF_A_NAME
    assert stem_of("poptorch/ir/test_ir_ipu.py::test_a[b-1]") == "poptorch-ir-test-ir-ipu-py-test-a-b-1"


def test_every_case_is_listed_with_its_outcome(read):
    """For those who search and for those who print."""
    assert [case for case in CASES if case not in read.sections["cases"]] == []


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 variables that matter"), (1, "1 variable that matters"), (3, "3 variables that matter")]
)
def test_what_is_counted_is_english(tmp_path, count, words):
    """One variable matters, several matter."""
    variables = {f"IPU_{number}": "1" for number in range(count)}
    lines = journals.write(tmp_path, entries(RESULTS, environment={**journals.ENVIRONMENT, "variables": variables}))
    report_folder.write(tmp_path, lines)
    shown = (tmp_path / "index.html").read_text(encoding="utf-8")

    assert f"<summary>{words}</summary>" in shown
    assert "<summary>1 package</summary>" in shown


def test_words_of_a_device_are_words_of_the_page(tmp_path):
    """What looks like an element in an id, a sentence, a trace or the name of a device is shown and not read."""
    hostile = "</script></title><img src=x onerror=alert(1)>\"'{{ 7 * 7 }}"
    result = Result(f"a/test_b_ipu.py::test_c[{hostile}]", "failed", 0.5, sentence=hostile, cause="error",
                    details=hostile, margin={"used": 2.0, "what": hostile, "checks": 1})  # fmt: skip
    *lines, end = entries([result], planned=[result.case])
    repeats = {
        "kind": "repeats",
        "at": end["at"],
        "case": result.case,
        "devices": {hostile: ["failed"], "d1": ["passed"]},
    }
    report_folder.write(tmp_path, journals.write(tmp_path, [*lines, repeats, end]))
    shown = (tmp_path / "index.html").read_text(encoding="utf-8")

    assert "<img" not in shown
    assert shown.count("</script>") == shown.count("<script>") == 1
    assert "{{ 7 * 7 }}" in shown


def test_the_page_has_light_and_dark_and_paper(text):
    """By the reader's own settings."""
    assert "color-scheme: light dark" in text
    assert "@media print" in text
