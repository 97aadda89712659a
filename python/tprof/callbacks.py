"""Callbacks for trainers, which record what PyTorch's operators don't show of a training job.

``tprof run`` finds steps by itself. The callbacks add epochs, validation and checkpoints as spans, and batch
sizes and logged values as counters, for ``tprof report spans``, ``counters`` and timelines:

    trainer = transformers.Trainer(..., callbacks=[tprof.callbacks.transformers()])
    trainer = lightning.Trainer(..., callbacks=[tprof.callbacks.lightning()])
    accelerator = accelerate.Accelerator(log_with=tprof.callbacks.accelerate())

Without tprof they do nothing. Each function needs its library and imports it.
"""

from __future__ import annotations

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

__all__ = ["accelerate", "lightning", "transformers"]


class _Spans:
    """Stores open spans by their purpose, because a trainer calls different methods at a span's beginning and end."""

    def __init__(self) -> None:
        self._open: Dict[str, int] = {}

    def begin(self, what: str, name: Optional[str] = None) -> None:
        self.end(what)
        self._open[what] = _abi.start(name or what)

    def end(self, what: str) -> None:
        if what in self._open:
            _abi.end(self._open.pop(what))

    def end_all(self) -> None:
        for what in list(self._open):
            self.end(what)


def _values(values: Mapping[str, Any]) -> None:
    """Records the numbers among a trainer's logged values as counters. Tensors are left out, because their value
    may wait for a device."""
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            _abi.counter(str(name), value)


def transformers() -> Any:
    """Returns a ``transformers.TrainerCallback``. It records the spans ``epoch N``, ``validation`` and
    ``checkpoint``, the counter ``batch_size`` (of this process, with gradient accumulation) and a counter for each
    number in the log (``loss``, ``learning_rate``). The span of an evaluation that the program calls itself begins
    with its first batch. Raises ImportError."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class TprofCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Names epochs, validation and checkpoints in the run that tprof records."""

        def __init__(self) -> None:
            self._spans = _Spans()
            self._checks = False
            self._saves = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _abi.counter("batch_size", args.train_batch_size * args.gradient_accumulation_steps)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._spans.begin("epoch", "epoch %d" % int(state.epoch or 0))

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._spans.end("epoch")
            self._announced(control)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._announced(control)

        def _announced(self, control: Any) -> None:
            # Immediately after this call, the trainer evaluates and then saves, if `control` says so.
            self._saves = control.should_save
            if control.should_evaluate:
                self._spans.begin("validation")
            elif self._saves:
                self._spans.begin("checkpoint")

        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not self._checks:
                self._checks = True
                if "validation" not in self._spans._open:
                    self._spans.begin("validation")

        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._checks = False
            self._spans.end("validation")
            if self._saves or control.should_save:
                self._spans.begin("checkpoint")

        def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
            self._checks = False
            self._spans.end("validation")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._saves = False
            self._spans.end("checkpoint")

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            _values(logs or {})

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._spans.end_all()

    return TprofCallback()


def lightning() -> Any:
    """Returns a callback of ``lightning.pytorch``, or of ``pytorch_lightning``. It records the spans ``epoch N``,
    ``validation``, ``test`` and ``predict``, a mark ``checkpoint`` for each checkpoint, the counter
    ``batch_size`` (if the batch is a tensor or begins with one) and a counter for each logged value that is already
    a number. Raises ImportError."""
    try:
        from lightning.pytorch import Callback  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from pytorch_lightning import Callback  # type: ignore[import-not-found,no-redef,unused-ignore]

    class TprofCallback(Callback):  # type: ignore[misc,unused-ignore]
        """Names epochs, validation and checkpoints in the run that tprof records."""

        def __init__(self) -> None:
            self._spans = _Spans()

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._spans.begin("epoch", "epoch %d" % trainer.current_epoch)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._spans.end("epoch")

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            size = _batch_size(batch)
            if size is not None:
                _abi.counter("batch_size", size)

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            self._spans.begin("validation")

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self._spans.end("validation")

        def on_test_start(self, trainer: Any, pl_module: Any) -> None:
            self._spans.begin("test")

        def on_test_end(self, trainer: Any, pl_module: Any) -> None:
            self._spans.end("test")

        def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
            self._spans.begin("predict")

        def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
            self._spans.end("predict")

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            _abi.mark("checkpoint")

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._spans.end_all()

    return TprofCallback()


def accelerate() -> Any:
    """Returns a tracker for ``Accelerator(log_with=...)``, which makes counters of the numbers that
    ``accelerator.log`` gets. The loop is the program's own; name its parts with ``tprof.range``. Raises
    ImportError."""
    from accelerate.tracking import GeneralTracker  # type: ignore[import-not-found,unused-ignore]

    class TprofTracker(GeneralTracker):  # type: ignore[misc,unused-ignore]
        """Records logged values in the run that tprof records."""

        name = "tprof"
        requires_logging_directory = False
        main_process_only = False

        @property
        def tracker(self) -> None:
            """None: there is no object for the run."""

        def store_init_configuration(self, values: Dict[str, Any]) -> None:
            """Does nothing: tprof keeps the command and the environment."""

        def log(self, values: Dict[str, Any], step: Optional[int] = None, **kwargs: Any) -> None:
            """Records the numbers among the values as counters."""
            _values(values)

    return TprofTracker()


def _batch_size(batch: Any) -> Optional[int]:
    """Returns the first dimension of the first tensor in a batch, or None if none is found."""
    for _ in range(4):
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) > 0 else None
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        else:
            return None
    return None
