"""What a database's rows mean: every store that writes in SQL asks for the same columns, in this order."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from onward.admission.idempotency import Claim, ClaimResult, KeptAnswer, claim_result
from onward.admission.keys import Key, Tenant, TenantStatus
from onward.admission.ledger import Entry, State
from onward.admission.store import StoredKey
from onward.core.attempt import Attempt
from onward.core.usage import Usage

Row = Sequence[Any]
Names = Callable[[Any], frozenset[str]]
"""Reads a list of names as a database keeps it."""
STATES: Final = {State.HELD: 0, State.SETTLED: 1, State.RELEASED: 2, State.EXPIRED: 3}
"""How a database writes where an entry is."""
_BY_NUMBER: Final = {number: state for state, number in STATES.items()}


_PRESSED_FROM: Final = 4096
"""Bytes. Below it pressing costs more than it saves."""
_PRESSED: Final = b"\x78"
"""The first byte of what zlib makes; MessagePack begins a map with another one."""
_encode_answer: Final = msgspec.msgpack.Encoder().encode
_decode_answer: Final = msgspec.msgpack.Decoder(KeptAnswer).decode


def answer_bytes(answer: KeptAnswer) -> bytes:
    """A kept answer as a database has it. Events of a stream are much alike: pressed, little is left."""
    encoded = _encode_answer(answer)
    return encoded if len(encoded) < _PRESSED_FROM else zlib.compress(encoded, level=1)


def claimed(claim: Claim, row: Row) -> ClaimResult:
    """What a claim gets, by the row under its name."""
    path, body, request_id, lease, answer = row
    return claim_result(
        claim,
        path=path,
        body_sha256=body,
        request_id=request_id,
        lease=lease,
        answer=None if answer is None else _answer(answer),
    )


def _answer(kept: bytes) -> KeptAnswer:
    return _decode_answer(zlib.decompress(kept) if kept.startswith(_PRESSED) else kept)


def stored_key(row: Row, names: Names) -> StoredKey:
    """A row of keys."""
    (key_id, name, sha256, tenant, models, monthly_cap, requests, tokens, concurrency, *rest) = row
    prefix, created_ms, last_used_ms, revoked_ms = rest
    return StoredKey(
        key=Key(
            id=key_id,
            name=name,
            sha256=sha256,
            tenant=tenant,
            models=None if models is None else names(models),
            monthly_cap=monthly_cap,
            requests_per_minute=requests,
            tokens_per_minute=tokens,
            concurrency=concurrency,
        ),
        prefix=prefix,
        created_ms=created_ms,
        last_used_ms=last_used_ms,
        revoked_ms=revoked_ms,
    )


def stored_tenant(row: Row, names: Names) -> Tenant:
    """A row of tenants."""
    name, status, prepaid, monthly_budget, agreements = row
    return Tenant(
        name=name,
        status=TenantStatus(status),
        prepaid=bool(prepaid),
        monthly_budget=monthly_budget,
        agreements=names(agreements),
    )


def stored_attempt(row: Row) -> Attempt:
    """A row of attempts."""
    deployment, outcome, status, started_ms, first_ms, took_ms = row
    return Attempt(
        deployment=deployment,
        outcome=outcome,
        status=status,
        started_ms=started_ms,
        first_ms=first_ms,
        took_ms=took_ms,
    )


def stored_entry(row: Row, attempts: Iterable[Attempt]) -> Entry:
    """A row of the ledger, its position first; what stands behind its times is the store's own."""
    (_, request_id, label, key_id, key_name, tenant, model, surface, config_version) = row[:9]
    (state, held, charged, prompt, completion, cached, estimated, overdraft, outcome) = row[9:18]
    at_ms, ended_ms = row[18:20]
    return Entry(
        request_id=request_id,
        label=label,
        key_id=key_id,
        key_name=key_name,
        tenant=tenant,
        model=model,
        surface=surface,
        state=_BY_NUMBER[state],
        held=held,
        charged=charged,
        usage=Usage(prompt, completion, cached),
        estimated=bool(estimated),
        overdraft=bool(overdraft),
        outcome=outcome,
        attempts=tuple(attempts),
        at_ms=at_ms,
        ended_ms=ended_ms,
        config_version=config_version,
    )
