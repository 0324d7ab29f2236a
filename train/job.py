"""`draftsmith train run`: from a captured dataset to a drafter's folder."""

import hashlib
import importlib.util
import sys
from typing import Any

import torch
from accelerate import Accelerator

from draftsmith.capture.dataset import CapturedDataset
from draftsmith.configs.base import ConfigError
from draftsmith.configs.support import refuse_untrained
from draftsmith.configs.train import Eagle3Config, Eagle3ObjectiveConfig, TrainConfig
from draftsmith.infer.drafters.checkpoint import save_drafter
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.precision import faster_dtype
from draftsmith.infer.target import Target, load_target, pick_device
from draftsmith.train.batches import Batches
from draftsmith.train.checkpoint import Checkpoints
from draftsmith.train.drafter import build_drafter
from draftsmith.train.objectives.eagle3 import Eagle3Objective
from draftsmith.train.output import Output, run_settings
from draftsmith.train.progress import Progress, describe
from draftsmith.train.samples import Split, split_samples
from draftsmith.train.trainer import Trainer


def run(config: TrainConfig) -> None:
    """Train a drafter, or go on from the newest checkpoint in `config.output`."""
    refuse_untrained(config)
    assert isinstance(config.drafter, Eagle3Config)
    output = Output(config.output)
    output.check(config)
    split, layer_ids = open_data(config)
    data = describe_data(split)
    if output.finished:
        output.check_data(data)
        say(f"{config.output}: this training is done; its drafter is there")
        return
    accelerator = start_accelerator(config, output)
    with output.held(accelerator.is_main_process):
        torch.manual_seed(config.seed)
        target = open_target(config, split, accelerator.device)
        drafter = build_drafter(config.drafter, target, split.train, layer_ids)
        drafter.to(accelerator.device)
        # Training needs the target's embedding and head alone, so its blocks' memory is given back.
        target.decoder.layers = torch.nn.ModuleList()
        if accelerator.is_main_process:
            output.claim(config)
        train(config, output, split, layer_ids, target, drafter, accelerator)


def train(
    config: TrainConfig,
    output: Output,
    split: Split,
    layer_ids: list[int],
    target: Target,
    drafter: Eagle3Drafter,
    accelerator: Accelerator,
) -> None:
    """Everything is checked: fit `drafter` and write it to the output."""
    assert isinstance(config.objective, Eagle3ObjectiveConfig)
    data = describe_data(split)
    checkpoints = Checkpoints(
        output.checkpoints,
        keep=config.checkpoint.keep,
        run=run_settings(config) | {"data": data, "mixed_precision": accelerator.mixed_precision},
    )
    batches = Batches(
        split.train,
        layer_ids,
        tokens=config.batch.tokens,
        accumulation=config.batch.accumulation,
        seed=config.seed,
        rank=accelerator.process_index,
        num_processes=accelerator.num_processes,
        num_workers=config.num_workers,
    )
    objective = Eagle3Objective(drafter, target, config.objective)
    trainer = Trainer(accelerator, objective, batches, split.heldout, checkpoints, config)
    if accelerator.is_main_process:
        for name in checkpoints.remove_unfinished():
            say(f"{name}: left by an interrupted save; removed")
    accelerator.wait_for_everyone()
    resumed = trainer.resume()
    progress = Progress(
        accelerator,
        output.log,
        log_every=config.tracking.log_every,
        last_step=trainer.state.step,
    )
    progress.say(
        f"{len(split.train)} samples to train on, {len(split.heldout)} held out, "
        f"{split.num_unsupervised} left out (no drafted token to compare); "
        f"{batches.steps_in_epoch(0)} steps in the first epoch"
    )
    if resumed:
        progress.say(f"continuing from {resumed}")
    if config.tracking.tracker != "none":
        start_tracker(accelerator, config, output)
    try:
        state = trainer.fit(progress)
        if accelerator.is_main_process:
            training = {
                "settings": run_settings(config),
                "data": data,
                "steps": state.step,
                "epochs": state.position.epoch,
                "seconds": round(state.elapsed, 1),
                "samples": len(split.train),
                "heldout": state.heldout,
            }
            save_drafter(drafter, output.folder, target=target, training=training)
    finally:
        progress.close()
        accelerator.end_training()
    progress.say(f"done after {state.step} steps; the drafter is in {config.output}")
    if state.heldout:
        progress.say(f"held out: {describe(state.heldout)}")


def open_data(config: TrainConfig) -> tuple[Split, list[int]]:
    """The dataset's split, and the captured layers the drafter reads."""
    max_length = min(config.batch.max_length or config.batch.tokens, config.batch.tokens)
    # The masks alone are read here; checksums are compared where training reads the states.
    masks = CapturedDataset(config.data, check_samples=False)
    split = split_samples(masks, config.heldout_fraction, max_length)
    layer_ids = [layer_id for layer_id in masks.manifest.aux_layer_ids if layer_id >= 0]
    if not layer_ids:
        raise ConfigError(
            f"data={config.data!r}: its layer_ids are {masks.manifest.layer_ids}; an EAGLE-3 "
            "drafter reads decoder blocks: capture ids of 0 and above"
        )
    return split.of(CapturedDataset(config.data)), layer_ids


def describe_data(split: Split) -> dict[str, Any]:
    """What the dataset holds, whatever its path: a run is only continued on the same."""
    dataset = split.train.dataset
    keys = hashlib.sha256("\n".join(dataset.keys).encode()).hexdigest()
    manifest = dataset.manifest
    return {
        "samples": keys,
        "target": manifest.target.fingerprint,
        "layer_ids": manifest.layer_ids,
        "codec": manifest.codec,
        "dtype": manifest.dtype,
    }


def open_target(config: TrainConfig, split: Split, device: torch.device) -> Target:
    """Load the target. Raises ConfigError unless the dataset was captured from its weights."""
    made_from = split.train.dataset.manifest.target
    target = load_target(config.target.model_copy(update={"device": str(device)}))
    if target.fingerprint != made_from.fingerprint:
        raise ConfigError(
            f"data={config.data!r} was captured from {made_from.path!r} (weights "
            f"{made_from.fingerprint}); target.path={config.target.path!r} has weights "
            f"{target.fingerprint}"
        )
    return target


def start_accelerator(config: TrainConfig, output: Output) -> Accelerator:
    """One process, or this one of those that `accelerate launch` started."""
    device = pick_device(config.target.device)
    if device.index is not None:
        torch.cuda.set_device(device)
    precision: str = config.mixed_precision
    if precision == "auto":
        dtype, line = faster_dtype(device)
        say(f"mixed_precision=auto: {line}")
        precision = "bf16" if dtype == torch.bfloat16 else "no"
    tracker = config.tracking.tracker
    if tracker != "none" and importlib.util.find_spec(tracker) is None:
        raise ConfigError(f"tracking.tracker={tracker!r} needs the package {tracker!r}: install it")
    return Accelerator(
        cpu=device.type == "cpu",
        mixed_precision=precision,
        log_with=None if tracker == "none" else tracker,
        project_dir=str(output.tracking),
    )


def start_tracker(accelerator: Accelerator, config: TrainConfig, output: Output) -> None:
    output.tracking.mkdir(exist_ok=True)
    options: dict[str, Any] = {}
    if config.tracking.tracker == "wandb":
        options = {"wandb": {"dir": str(output.tracking)}}
    # TensorBoard stores only flat settings.
    settings = {"output": config.output, "data": config.data, "seed": config.seed}
    accelerator.init_trackers(config.tracking.project, config=settings, init_kwargs=options)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
