"""Functions of tensors from kernels."""

from ._frameworks import _KNOWN, framework_of

_SCHEMA = {float: "float", int: "int", bool: "bool", str: "str"}


class Op:
    """A kernel as a function of tensors of any library. Made by :func:`op`."""

    def __init__(self, name, kernel, tensors, numbers, shape, backward, scratch, namespace, doc):
        self.name, self.kernel, self.namespace = name, kernel, namespace
        self.tensors, self.numbers = tuple(tensors), dict(numbers)
        self.shape, self.backward, self.scratch = shape, backward, scratch
        self._torch = None
        self.__name__, self.__doc__ = name, doc or kernel.__doc__

    def __call__(self, *args, **named):
        tensors, numbers = self._bound(args, named)
        framework = framework_of(tensors[0])
        if framework is None:
            raise TypeError(f"{self.name}: a {type(tensors[0]).__name__} is no tensor of torch, CuPy, JAX or NumPy")
        if framework is _KNOWN["torch"]:
            self._register()
            return self._torch(*tensors, *numbers.values())
        return self._run(framework, tensors, numbers)

    def __repr__(self):
        return f"<cutlet.Op {self.namespace}::{self.name}{self.schema()}>"

    def schema(self):
        """The signature, as torch writes it."""
        parts = [f"Tensor {name}" for name in self.tensors]
        for name, value in self.numbers.items():
            kind = value if isinstance(value, type) else type(value)
            parts.append(f"{_SCHEMA[kind]} {name}" + ("" if isinstance(value, type) else f"={value}"))
        return f"({', '.join(parts)}) -> Tensor"

    def torch_op(self):
        """The operator of torch, ``torch.ops.<namespace>.<name>``, which the first call registers."""
        if self._torch is None:
            self._torch = self._registered()
        return self._torch

    def _register(self):
        self.torch_op()
        return True

    # As torch.compiler.assume_constant_result marks it, without an import of torch: torch.compile calls the method, and does not
    # trace the registration.
    _register._dynamo_marked_constant = True

    def _bound(self, args, named):
        names = (*self.tensors, *self.numbers)
        if len(args) > len(names):
            raise TypeError(f"{self.name} takes {len(names)} arguments, {names}, not {len(args)}")
        given = {**dict(zip(names, args)), **named}
        for name in given:
            if name not in names:
                raise TypeError(f"{self.name} has no argument {name!r}: its arguments are {names}")
        for name, value in self.numbers.items():
            if name not in given and not isinstance(value, type):
                given[name] = value
        for name in names:
            if name not in given:
                raise TypeError(f"{self.name} needs the argument {name!r}")
        kinds = {name: value if isinstance(value, type) else type(value) for name, value in self.numbers.items()}
        return [given[name] for name in self.tensors], {name: kind(given[name]) for name, kind in kinds.items()}

    def _shape(self, tensors, numbers):
        return tuple(tensors[0].shape) if self.shape is None else tuple(self.shape(*tensors, **numbers))

    def _run(self, framework, tensors, numbers):
        result = framework.empty(tensors[0], self._shape(tensors, numbers))
        stream = framework.stream(tensors[0])
        written = [result]
        if self.scratch is not None:
            written.append(framework.scratch(tensors[0], self.scratch(framework.gpu(tensors[0]), *tensors, **numbers)))
        capsules = [framework.capsule(x, stream) for x in tensors]
        capsules += [framework.target(x, stream) for x in written]
        with framework.guard(tensors[0]):
            self.kernel(*capsules, *numbers.values(), stream=stream)
        return framework.result(result)

    def _registered(self):
        import torch

        count, names = len(self.tensors), tuple(self.numbers)

        def split(args):
            # torch leaves out trailing arguments that have their default values.
            return list(args[:count]), {**self.numbers, **dict(zip(names, args[count:]))}

        def run(*args):
            return self._run(_KNOWN["torch"], *split(args))

        def fake(*args):
            return args[0].new_empty(self._shape(*split(args)))

        made = torch.library.custom_op(f"{self.namespace}::{self.name}", run, mutates_args=(), schema=self.schema())
        made.register_fake(fake)
        if self.backward is not None:

            def setup(ctx, inputs, output):
                tensors, numbers = split(inputs)
                ctx.save_for_backward(output, *tensors)
                ctx.numbers, ctx.given = numbers, len(inputs)

            def backward(ctx, grad):
                result, *tensors = ctx.saved_tensors
                gradients = self.backward(grad, result, *tensors, **ctx.numbers)
                if not isinstance(gradients, tuple):
                    gradients = (gradients,)
                return (*gradients, *[None] * (ctx.given - len(gradients)))

            made.register_autograd(backward, setup_context=setup)
        return made


def op(name, kernel, *, tensors=("x",), numbers=(), shape=None, backward=None, scratch=None, namespace="cutlet", doc=None):
    """Makes a function of tensors from a kernel.

    ``kernel(*tensors, result, *numbers, stream=...)`` is a function of a module of Rust: tensors arrive there as capsules.

    ``tensors``: the names of the tensors. The result has the type and the device of the first one.
    ``numbers``: the other arguments by name, each a default value, or a type (``float``, ``int``, ``bool``, ``str``).
    ``shape``: a function of all arguments that returns the shape of the result; by default that of the first tensor.
    ``backward``: for torch, a function ``(grad, result, *tensors, **numbers)`` of the gradients of the tensors.
    ``scratch``: a function of the number of the GPU (None on the host) and all arguments that returns a number of f32 elements.
    The kernel receives a tensor of so many, of any content, after the result.
    ``namespace``: that of the operator of torch.
    ``doc``: the documentation of the function.
    """
    return Op(name, kernel, tensors, dict(numbers), shape, backward, scratch, namespace, doc)
