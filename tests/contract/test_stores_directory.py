"""What every store promises about keys and tenants."""

import pytest

from onward.admission.keys import Key, Tenant, TenantStatus, digest
from onward.admission.store import Store, StoredKey
from onward.core.failure import Failure, FailureKind
from tests.contract.stores import NOVEMBER, Place, apply, release, reserve


def key(name: str, **fields) -> Key:
    return Key(id=f"key_{name}", name=name, sha256=digest(f"on-{name}"), **fields)


FULL = key(
    "full",
    tenant="acme",
    models=frozenset({"org/model", "an'other"}),
    monthly_cap=5_000_000_000,
    requests_per_minute=60,
    tokens_per_minute=1000,
    concurrency=4,
)


async def add(store: Store, new: Key, at_ms: int = NOVEMBER) -> StoredKey:
    return await store.add_key(new, prefix=f"on-{new.name[:4]}", at_ms=at_ms)


async def test_a_key_is_kept_as_it_was_given(place: Place, store: Store):
    stored = await add(store, FULL)
    assert stored == StoredKey(
        key=FULL, prefix="on-full", created_ms=NOVEMBER, last_used_ms=None, revoked_ms=None
    )
    none = await add(store, key("none", models=frozenset()))
    assert none.key.models == frozenset()
    assert await store.key(FULL.id) == stored
    store = await place.crash()
    assert await store.key(FULL.id) == stored
    assert (await store.directory()).keys == [FULL, none.key]
    assert await store.key("key_other") is None


async def test_the_name_of_a_living_key_is_its_own(store: Store):
    await add(store, key("ci"))
    again = Key(id="key_again", name="ci", sha256=digest("again"))
    with pytest.raises(Failure) as caught:
        await add(store, again)
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "name")
    await store.revoke_key("key_ci", NOVEMBER)
    assert (await add(store, again)).key == again
    await add(store, key("other"))
    with pytest.raises(Failure) as caught:
        await store.change_key(Key(id="key_other", name="ci", sha256=b""))
    assert caught.value.param == "name"
    assert (await store.key("key_other")).key.name == "other"


async def test_changing_a_key(store: Store):
    """Its secret stays, whatever the change says."""
    await add(store, FULL)
    changed = await store.change_key(Key(id=FULL.id, name="new", sha256=b"not kept", concurrency=9))
    assert changed.key == Key(id=FULL.id, name="new", sha256=FULL.sha256, concurrency=9)
    assert await store.key(FULL.id) == changed
    assert await store.change_key(key("missing")) is None
    await store.revoke_key(FULL.id, NOVEMBER + 1)
    assert await store.change_key(FULL) is None


async def test_revoking_a_key(store: Store):
    await add(store, key("ci"))
    await store.touch_keys({"key_ci": NOVEMBER + 3})
    revoked = await store.revoke_key("key_ci", NOVEMBER + 5)
    assert (revoked.revoked_ms, revoked.last_used_ms) == (NOVEMBER + 5, NOVEMBER + 3)
    assert await store.revoke_key("key_ci", NOVEMBER + 9) == revoked
    assert await store.revoke_key("key_missing", NOVEMBER) is None
    assert (await store.directory()).keys == []
    assert await store.keys(after=None, limit=10) == [revoked]


async def test_last_use(store: Store):
    await add(store, key("a"))
    await add(store, key("b"))
    await store.touch_keys({})
    await store.touch_keys({"key_a": 500, "of-the-config": 500})
    await store.touch_keys({"key_a": 400})
    assert [stored.last_used_ms for stored in await store.keys(after=None, limit=9)] == [500, None]


async def test_pages_of_keys(store: Store):
    names = [f"k{number}" for number in range(5)]
    for name in reversed(names):
        await add(store, key(name))
    seen: list[str] = []
    after = None
    while page := await store.keys(after=after, limit=2):
        assert len(page) <= 2
        seen += [stored.key.name for stored in page]
        after = page[-1].key.id
    assert seen == names


async def test_tenants(place: Place, store: Store):
    acme = Tenant(name="acme", prepaid=True, monthly_budget=7, agreements=frozenset({"a", "b"}))
    await store.add_tenant(acme, NOVEMBER)
    await store.add_tenant(Tenant(name="büro & söhne"), NOVEMBER)
    with pytest.raises(Failure) as caught:
        await store.add_tenant(Tenant(name="acme"), NOVEMBER)
    assert (caught.value.kind, caught.value.param) == (FailureKind.INVALID_REQUEST, "name")
    assert (await store.directory()).tenants == [acme, Tenant(name="büro & söhne")]
    changed = Tenant(name="acme", status=TenantStatus.UNPAID)
    assert await store.change_tenant(changed)
    assert not await store.change_tenant(Tenant(name="missing"))
    store = await place.crash()
    assert (await store.directory()).tenants == [changed, Tenant(name="büro & söhne")]


async def test_the_revision_tells_of_every_change(place: Place, store: Store):
    """And of nothing else: whoever asks every second reads the directory only when it changed."""
    seen = [await store.revision()]

    async def changed() -> bool:
        seen.append(await store.revision())
        assert (await store.directory()).revision == seen[-1]
        return seen[-1] != seen[-2]

    await add(store, FULL)
    assert await changed()
    await store.touch_keys({FULL.id: 5})
    await store.credit("acme", 5, note="", at_ms=1)
    assert not await changed()
    await store.change_key(key("full"))
    assert await changed()
    await store.add_tenant(Tenant(name="acme"), 1)
    assert await changed()
    await store.change_tenant(Tenant(name="acme", prepaid=True))
    assert await changed()
    await (await place.beside()).revoke_key(FULL.id, 1)
    assert await changed()
    for nothing in (store.revoke_key(FULL.id, 2), store.change_key(key("x"))):
        await nothing
    with pytest.raises(Failure):
        await store.add_tenant(Tenant(name="acme"), 1)
    assert not await changed()
    assert len(set(seen)) == 6, "a revision never comes back"


async def test_a_request_is_cancelled_until_it_ends(store: Store):
    """Whoever runs it learns of it by the revision."""
    await store.renew("lease", NOVEMBER * 2)
    await apply(store, reserve("r", 1, ()), reserve("other", 1, ()))
    before = await store.revision()
    assert await store.cancel("r")
    assert await store.revision() != before
    assert (await store.directory()).cancelled == ["r"]
    assert await store.cancel("r")
    assert not await store.cancel("nothing")
    await apply(store, release("r"))
    assert (await store.directory()).cancelled == []
    assert not await store.cancel("r")
