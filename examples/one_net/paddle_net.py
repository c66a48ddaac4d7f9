"""The same two dense layers with Paddle: writes paddle.onnx and samples.npz.

Run it with ``ipu-conformance emulate examples/one_net/paddle_net.py``.
"""

import numpy as np
import paddle
from paddle import static

BATCH, BATCHES = 2, 3


def main():
    paddle.enable_static()
    paddle.seed(2021)
    main_program, startup = static.Program(), static.Program()
    with static.program_guard(main_program, startup):
        x = static.data("x", [BATCH, 3], "float32")
        with static.ipu_shard_guard(index=0, stage=0):
            hidden = static.nn.fc(x, 4, activation="relu")
        with static.ipu_shard_guard(index=1, stage=1):
            scores = static.nn.fc(hidden, 2)
    executor = static.Executor(paddle.IPUPlace())
    executor.run(startup)
    strategy = static.IpuStrategy()
    strategy.set_graph_config(num_ipus=2, is_training=False, enable_manual_shard=True, micro_batch_size=BATCH)
    strategy.set_pipelining_config(enable_pipelining=True, batches_per_step=BATCHES)
    strategy.set_options({"onnx_dump_path": "paddle.onnx"})
    program = static.IpuCompiledProgram(main_program, ipu_strategy=strategy).compile([x.name], [scores.name])

    samples = np.random.RandomState(2021).randn(BATCH * BATCHES, 3).astype("float32")
    (found,) = executor.run(program, feed={x.name: samples}, fetch_list=[scores])
    np.savez("samples.npz", x=samples.reshape(BATCHES, BATCH, 3))
    print("The device's mean score is", round(float(np.mean(found)), 6))


if __name__ == "__main__":
    main()
