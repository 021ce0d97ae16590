"""Which adapters stay in memory."""

import pytest

from onward.core.failure import Failure, FailureKind
from onward.engines.llama.adapters import Adapters


class Context:
    """A context, and its model: notes what is loaded, freed and used."""

    def __init__(self):
        self.model = self
        self.alive = []
        self.used = None

    def load_adapter(self, path):
        if path == "broken":
            raise ValueError("no adapter")
        self.alive.append(path)
        return path

    def free_adapter(self, handle):
        assert self.used != handle, "freed while it is applied"
        self.alive.remove(handle)

    def use_adapter(self, handle):
        assert handle is None or handle in self.alive
        self.used = handle


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def adapters(context):
    return Adapters(context, limit=2)


def test_the_least_recently_used_is_unloaded(context, adapters):
    for name in ("a", "b", "a", "c"):
        adapters.take(name, f"/{name}", ())
        adapters.use(name)
    assert context.alive == ["/a", "/c"]
    assert len(adapters) == 2


def test_what_is_in_use_stays(context, adapters):
    adapters.take("a", "/a", ())
    adapters.take("b", "/b", {"a"})
    assert adapters.has_room("c", {"a"})
    adapters.take("c", "/c", {"a"})
    assert context.alive == ["/a", "/c"]
    assert not adapters.has_room("d", {"a", "c"})
    assert adapters.has_room("a", {"a", "c"})


def test_where_one_was_added_is_remembered_when_it_is_unloaded(context, adapters):
    adapters.add("a", "/a", ())
    for name in "bc":
        adapters.take(name, f"/{name}", ())
    assert context.alive == ["/b", "/c"]
    assert adapters.knows("a")
    adapters.take("a", None, ())
    assert context.alive == ["/c", "/a"]
    with pytest.raises(Failure):
        adapters.take("x", None, ())


def test_replacing_one_frees_the_old_one(context, adapters):
    adapters.add("a", "/a", ())
    adapters.use("a")
    adapters.add("a", "/other", ())
    assert context.alive == ["/other"]


def test_what_cannot_be_loaded_leaves_the_rest(context, adapters):
    adapters.take("a", "/a", ())
    with pytest.raises(Failure) as caught:
        adapters.take("x", "broken", ())
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "model")
    adapters.use("a")
    adapters.use(None)
    assert context.used is None
