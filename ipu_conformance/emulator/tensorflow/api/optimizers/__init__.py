"""The vendor's optimizers: each wraps another one."""

from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(
    __name__,
    members={
        "AutomaticLossScalingOptimizer": "automatic_loss_scaling_optimizer",
        "CrossReplicaGradientAccumulationOptimizer": "gradient_accumulation_optimizer",
        "CrossReplicaGradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
        "CrossReplicaOptimizer": "cross_replica_optimizer",
        "GradientAccumulationOptimizer": "gradient_accumulation_optimizer",
        "GradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
        "GradientAccumulationReductionMethod": "gradient_accumulation_optimizer",
        "IpuOptimizer": "ipu_optimizer",
        "MapGradientOptimizer": "map_gradient_optimizer",
        "MapGradientOptimizerInvertedChaining": "map_gradient_optimizer",
        "ShardedOptimizer": "sharded_optimizer",
    },
)
