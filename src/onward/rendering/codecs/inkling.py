"""Calls as Inkling writes them: an object with a name and args, behind the name as a label."""

from onward.rendering.codecs.call import Body, Call, CodecError, Tools, loads, name_of, object_text
from onward.rendering.codecs.json_call import members


def inkling_call(body: Body, _: Tools) -> list[Call]:
    """The label may be left out; one that names another function is an error."""
    slices = members(body.text)
    if set(slices) != {"name", "args"}:
        raise CodecError("an object with other members than a name and args")
    name = name_of(loads(slices["name"]))
    label = "".join(body.label).strip()
    if label and label != name:
        raise CodecError("a call of another function than its label says")
    return [Call(name, object_text(slices["args"]))]
