"""Keys: found by their digest, never shown, limited to models."""

import pytest

from onward.admission.keyring import Keys
from onward.admission.keys import Key, digest, not_allowed
from onward.core.failure import Failure, FailureKind

KEY = Key(id="ci", name="ci", sha256=digest("on-right"), models=frozenset({"a"}))


def test_without_keys_everybody_may_call():
    assert not Keys()
    assert Keys().find(None) is None
    assert Keys().find("anything") is None


def test_after_the_last_key_nobody_may_call():
    keys = Keys([KEY])
    keys.replace([], [], closed=True)
    assert keys
    for secret in (None, "on-right"):
        with pytest.raises(Failure) as caught:
            keys.find(secret)
        assert caught.value.kind is FailureKind.INVALID_KEY


@pytest.mark.parametrize(
    "secret", [None, "", "on-wrong", "on-right ", "ON-RIGHT", "on-righ", "ключ", "\udcff"]
)
def test_wrong_secrets_are_refused_and_not_repeated(secret: str | None):
    with pytest.raises(Failure) as caught:
        Keys([KEY]).find(secret)
    assert caught.value.kind is FailureKind.INVALID_KEY
    if secret and secret.strip():
        assert secret not in caught.value.message


def test_the_right_secret_finds_its_key():
    other = Key(id="other", name="other", sha256=digest("on-other"))
    assert Keys([other, KEY]).find("on-right") is KEY
    assert Keys([KEY, other]).find("on-other") is other


def test_models_of_a_key():
    assert KEY.allows("a")
    assert not KEY.allows("b")
    assert Key(id="all", name="all", sha256=digest("x")).allows("b")
    failure = not_allowed("b")
    assert (failure.kind, failure.param) == (FailureKind.MODEL_NOT_ALLOWED, "model")
