"""What a party that deviates sends, and what `wire.encode` refuses to write."""

from dataclasses import replace

from xclp_crypto import wire


def forge(payload, kind, changes, **dims):
    """Change fields of an encoded message by functions of their values, to any length."""
    message = wire.decode(kind, payload, **dims)
    message = replace(message, **{k: change(getattr(message, k)) for k, change in changes.items()})
    # Without the public sizes, no field is compared with another.
    parts = [
        part for name, field in kind._sent for part in field.encode(getattr(message, name), {})
    ]
    return payload[: wire.TAG_BYTES] + b"".join(parts)
