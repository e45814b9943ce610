"""Modules of the originals, with stubs for all that their kernels do not use."""
import importlib.abc
import importlib.util
import sys
import types


class Base:
    """A base of classes."""
    apply = None


class Stub(types.ModuleType):
    """A module whose attributes are stubs, which decorate nothing."""
    __path__ = []

    def __init__(self, name="stub"):
        super().__init__(name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Base if name in ("Function", "Module") else Stub(name)

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and not named and not isinstance(arguments[0], str) else self

    def __or__(self, other):
        return self

    __ror__ = __getitem__ = __or__


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are asked for by name, and stubs for all others of the same packages."""

    def __init__(self, roots, stubs, values=None):
        # Folder by package, packages that are not there, and attributes of stubs by module.
        self.roots, self.stubs, self.values, self.real = roots, stubs, values or {}, set()
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if name in self.real:
            return importlib.util.spec_from_file_location(name, self.roots[package] / (name.replace(".", "/") + ".py"))
        return importlib.util.spec_from_loader(name, self, is_package=True) if package in (*self.stubs, *self.roots) else None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        vars(module).update(self.values.get(module.__name__, {}))

    def load(self, name):
        """The module of a dotted name."""
        self.real.add(name)
        # Another module may have imported the stub.
        if isinstance(sys.modules.get(name), Stub):
            del sys.modules[name]
        return importlib.import_module(name)
