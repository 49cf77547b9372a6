"""Steps on torch, eager as in `fit`; and those of torch's own Adam and GradScaler."""

import functools
import gc
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.on_a_gpu.models import batch_of
from benchmarks.on_a_gpu.policies import NARROW, RATE, REWRITE, optimizers, under
from benchmarks.on_a_gpu.sizes import Size, Work
from benchmarks.on_a_gpu.steps import Steps, Variants, by_clock
from benchmarks.train_step import makers


class Torch:
    def __init__(self, quick: bool) -> None:
        import torch

        self.cuda = torch.cuda.is_available()
        if quick and not self.cuda:
            torch.set_num_threads(1)  # tiny products only, for which threads would spin
        self.name = torch.cuda.get_device_name() if self.cuda else "cpu"
        self.device = "cuda" if self.cuda else "cpu"
        self.failures = (RuntimeError, ValueError)
        self.versions = {"torch": torch.__version__, "CUDA": torch.version.cuda or "none"}

    def free(self) -> int | None:
        """Returns how many bytes are free; None if that is not known."""
        import torch

        gc.collect()
        if not self.cuda:
            return None
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def wait(self) -> None:
        import torch

        if self.cuda:
            torch.cuda.synchronize()

    def begin_peak(self) -> None:
        import torch

        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self, _: Steps) -> int | None:
        """Returns the most bytes that were in use since; None on a CPU."""
        import torch

        return torch.cuda.max_memory_allocated() if self.cuda else None

    def waits(self, steps: Steps) -> int | None:
        """Returns how often Python waits for the device in a step; None on a CPU."""
        import torch

        if not self.cuda:
            return None
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                steps.take()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        return sum("synchroniz" in str(each.message) for each in told)

    def timed(self, steps: Steps, count: int) -> float:
        import torch

        self.wait()
        if not self.cuda:
            return by_clock(steps, count)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            steps.take()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / count

    def copying(self, elements: int) -> Steps:
        import torch

        given = torch.ones(elements, device=self.device)
        taken = torch.empty_like(given)
        return Steps(lambda: taken.copy_(given), self.wait, lambda: None)

    def updates(self, size: Size) -> Variants:
        import keras
        import torch

        from benchmarks import step_variants

        generator = torch.Generator(self.device).manual_seed(0)

        def drawn(shape: tuple[int, ...]) -> Any:
            return torch.randn(shape, generator=generator, device=self.device).mul_(1e-2)

        variables = [
            keras.Variable(lambda _, shape=shape, **__: drawn(shape), shape, name=f"v{i}")
            for i, shape in enumerate(size.shapes())
        ]
        gradients = [drawn(shape) for shape in size.shapes()]
        nothing, no_loss = (torch.zeros(shape, device=self.device) for shape in ((1, 1), ()))

        def in_keras(make: Callable[[], Any]) -> Steps:
            optimizer = make()
            optimizer.build(variables)
            model = step_variants._model(optimizer, variables)
            model.gradients = gradients
            type(model)._compute_loss = lambda *_, **__: no_loss  # its own would come from the host
            return self._steps(lambda: model.train_step((nothing, nothing)), optimizer)

        def alone(scaled: bool) -> Steps:
            parameters = [variable.value for variable in variables]
            adam = torch.optim.Adam(parameters, RATE, eps=1e-7, fused=True)
            scaler = torch.amp.GradScaler(self.device, init_scale=1.0, enabled=scaled)
            scaler.scale(torch.zeros((), device=self.device))
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

            def take() -> None:
                scaler.step(adam)
                scaler.update()

            return Steps(take, self.wait, lambda: scaler.get_scale() if scaled else None)

        found: Variants = {
            n: functools.partial(in_keras, make) for n, make in makers(RATE, 1.0).items()
        }
        found["torch Adam"] = functools.partial(alone, False)
        found["GradScaler"] = functools.partial(alone, True)
        return found

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        import keras
        import torch

        keras.utils.set_random_seed(0)
        model = under(policy, size)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        batch = tuple(torch.tensor(array, device=self.device) for array in batch_of(size))

        def compiled(optimizer: Any) -> None:
            model.compile(optimizer, loss, jit_compile=False, auto_scale_loss=False)
            gc.collect()  # the state of the one before, which was the model's until now

        def in_keras(make: Callable[[], Any]) -> Steps:
            optimizer = make()
            compiled(optimizer)
            optimizer.build(model.trainable_variables)
            return self._steps(lambda: model.train_step(batch), optimizer)

        def alone(scaled: bool) -> Steps:
            compiled(None)
            parameters = [variable.value for variable in model.trainable_variables]
            adam = torch.optim.Adam(parameters, RATE, eps=1e-7, fused=True)
            scaler = torch.amp.GradScaler(self.device, init_scale=scale, enabled=scaled)

            def take() -> None:
                adam.zero_grad(set_to_none=True)
                value = loss(batch[1], model(batch[0], training=True))
                scaler.scale(value).backward()
                scaler.step(adam)
                scaler.update()

            return Steps(take, self.wait, lambda: scaler.get_scale() if scaled else None)

        found: Variants = {
            n: functools.partial(in_keras, make) for n, make in optimizers(policy, scale).items()
        }
        if policy not in (REWRITE, NARROW):
            found["torch Adam"] = functools.partial(alone, False)
            found["GradScaler"] = functools.partial(alone, True)
        return found

    def _steps(self, take: Callable[[], Any], optimizer: Any) -> Steps:
        kept = getattr(optimizer, "dynamic_scale", None)
        return Steps(
            take,
            self.wait,
            lambda: None if kept is None else float(kept.value),
            lambda: getattr(optimizer, "fused_fallback", None),
        )
