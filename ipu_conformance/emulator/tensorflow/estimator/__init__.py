"""The parts of the emulated estimators: stock ``tf.estimator`` around programs that loop on the device.

Stock's Estimator does all that does not concern the device: graphs, sessions, checkpoints, summaries, hooks.
It asks for features and labels and hands them to the model function; here it gets an infeed instead of features, and a
``Program`` in place of the model function, which compiles a loop over that infeed and returns a stock EstimatorSpec::

    train, evaluate, predict          base.BaseEstimator, a tf.estimator.Estimator
      input_fn   -> IPUInfeedQueue    feeds.infeed
      model_fn   -> Program           BaseEstimator._program(call): what a kind of estimator brings of its own
        one loop on the device        program.Program.train(), .evaluate(), .predict()
      global step, stopping           program.counting_steps, hooks.StopAfterLoops

A kind of estimator is a subclass of ``BaseEstimator`` whose ``_program(call)`` returns a subclass of
``program.Program``; ``loop.LoopProgram`` is that of IPUEstimator.
"""
