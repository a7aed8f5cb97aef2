"""The sample request: json work and one question to the host.

The whole answer can be checked from outside: `total` and `names` follow from the context,
`host` is what the host answered.
"""
import json

import _hornbeam


def main(context):
    items = json.loads(json.dumps(context["items"]))
    question = json.dumps({"user": context["user"], "count": len(items)})
    return {
        "user": context["user"],
        "names": sorted(item["name"] for item in items),
        "total": sum(item["price"] * item["quantity"] for item in items),
        "host": _hornbeam.call("lookup", question.encode()).decode(),
    }
