"""A classifier for IPUs in the style of Paddle's first age: trained as a Program, saved, loaded and asked.

ipu-conformance emulate examples/paddle/fluid_pictures.py train model
ipu-conformance emulate examples/paddle/fluid_pictures.py infer model
"""

import sys

import numpy as np
import paddle
import paddle.fluid as fluid

CLASSES, SIDE, BATCH, STEPS = 3, 8, 6, 12


def pictures(count, seed):
    """Pictures with a bright row in the upper, middle or lower third, and which of them."""
    random = np.random.RandomState(seed)
    label = random.randint(0, CLASSES, (count, 1))
    image = random.uniform(0, 0.2, (count, 1, SIDE, SIDE))
    for number, place in enumerate(label[:, 0]):
        image[number, 0, 1 + 2 * place] += 1
    return image.astype("float32"), label.astype("int64")


def network(image):
    """A convolution, a pool and a softmax."""
    start = fluid.ParamAttr(initializer=fluid.initializer.Xavier(seed=5))
    hidden = fluid.layers.conv2d(image, num_filters=4, filter_size=3, act="relu", param_attr=start)
    hidden = fluid.layers.pool2d(hidden, pool_size=2, pool_stride=2, pool_type="max")
    return fluid.layers.fc(hidden, size=CLASSES, act="softmax")


def compiled(program, feeds, fetches, training):
    """The Program for one IPU."""
    strategy = fluid.compiler.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=training, micro_batch_size=BATCH)
    return fluid.compiler.IpuCompiledProgram(program, ipu_strategy=strategy).compile(feeds, fetches)


def train(folder):
    """Train on fresh pictures in each step, and save what classifies them."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        image = fluid.layers.data(name="image", shape=[1, SIDE, SIDE], dtype="float32")
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        prediction = network(image)
        cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
        fluid.optimizer.AdamOptimizer(learning_rate=0.05).minimize(cost)
    executor = fluid.Executor(fluid.IPUPlace())
    executor.run(startup)
    program = compiled(main, ["image", "label"], [cost.name], training=True)
    for step in range(STEPS):
        images, labels = pictures(BATCH, step)
        (value,) = executor.run(program, feed={"image": images, "label": labels}, fetch_list=[cost])
        if step in (0, STEPS - 1):
            print("step", step, "cost", round(float(value[0]), 3))
    fluid.core.IpuBackend.get_instance().weights_to_host()
    fluid.io.save_inference_model(folder, ["image"], [prediction], executor, main)


def infer(folder):
    """Classify pictures with the saved model, on the IPU."""
    executor = fluid.Executor(fluid.CPUPlace())
    program, feeds, targets = fluid.io.load_inference_model(folder, executor)
    device = compiled(program, feeds, [target.name for target in targets], training=False)
    images, labels = pictures(BATCH, 100)
    (chances,) = executor.run(device, feed={feeds[0]: images}, fetch_list=targets)
    print("recognised", int((chances.argmax(1) == labels[:, 0]).sum()), "of", BATCH)


if __name__ == "__main__":
    paddle.enable_static()
    {"train": train, "infer": infer}[sys.argv[1]](sys.argv[2])
