"""Laws of failover over every failure of a provider and every API; and that the page tells what happens."""

import pytest

from onward.core.failure import FailureKind
from onward.dialects import DIALECTS
from tests.http.failover_table import FAILURES, PAGE, Seen, all_seen, class_header, page
from tests.http.gateway import UPSTREAM, cost
from tests.mock_answers import SECRET

AFTER_OUTPUT = ("two pieces", "its last event", "ends the stream")


@pytest.fixture(scope="module")
async def found(tmp_path_factory) -> dict[str, list[Seen]]:
    return await all_seen(tmp_path_factory.mktemp("table"))


def case(seen: Seen) -> str:
    return f"{seen.way.title} {'streamed' if seen.stream else 'whole'} {'with another' if seen.standby else 'alone'}"


async def test_the_page_tells_what_happens(found):
    """`python -m tests.http.failover_table` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(found)


@pytest.mark.parametrize("name", [one.name for one in FAILURES])
@pytest.mark.complaint("G06", "G17")
@pytest.mark.covers("K-7", "K-12", "P-9")
async def test_laws(found, name: str):
    for seen in found[name]:
        about = f"{name}: {case(seen)}: {seen.answer.status_code} {seen.answer.text[:300]}"
        entry = seen.entry
        assert len(entry.attempts) in {1, 2} if seen.standby else len(entry.attempts) == 1, about
        for word in (UPSTREAM, SECRET, "nginx", "127.0.0.1"):
            assert word not in seen.answer.text + str(seen.answer.headers), about
        outcomes = [one.outcome for one in entry.attempts]
        assert "ok" not in outcomes[:-1], about
        if seen.whole:
            _answered(seen, about)
        elif seen.answer.status_code == 200:
            # a stream that broke off behind its first piece: no other one was asked, what came is charged
            assert seen.stream, about
            assert any(word in name for word in AFTER_OUTPUT), about
            assert len(entry.attempts) == 1, about
            assert seen.pieces, about
            assert entry.charged >= cost(entry.usage.prompt_tokens, seen.pieces), about
            assert entry.outcome == outcomes[-1], about
        else:
            # nothing came: nothing is charged
            assert (entry.charged, entry.usage.completion_tokens) == (0, 0), about
            _shown(seen, about)
            if seen.standby:
                final = DIALECTS[seen.way.dialect].passing.final
                assert FailureKind(outcomes[-1]) in final, about


def _answered(seen: Seen, about: str) -> None:
    """By one of them, which is charged alone."""
    entry = seen.entry
    assert entry.attempts[-1].outcome == "ok", about
    assert entry.usage.completion_tokens == 5 or entry.estimated, about
    assert entry.charged == cost(entry.usage.prompt_tokens, entry.usage.completion_tokens), about
    header = class_header(seen.way.dialect)
    if header is not None:
        shown = "primary" if len(entry.attempts) == 1 else "fallback"
        assert seen.answer.headers[header] == shown, about


def _shown(seen: Seen, about: str) -> None:
    """As the API's table has it; of a lone provider the status where it says so."""
    dialect = DIALECTS[seen.way.dialect]
    failure = FailureKind(seen.entry.attempts[-1].outcome)
    row = dialect.errors[failure]
    provider = seen.entry.attempts[-1].status
    statuses = {row.status, provider} if row.passes_status else {row.status}
    assert seen.answer.status_code in statuses, about
    shape = dialect.surfaces[seen.way.surface].failures
    code = row.code if shape is None else shape.type_of(seen.answer.status_code)
    assert seen.code == code, about
    if seen.answer.status_code in {429, 503}:
        assert int(seen.answer.headers["retry-after"]) >= 1, about
