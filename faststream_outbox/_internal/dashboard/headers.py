"""The headers of every answer: what a browser may do with our pages, which is little.

No script, style or picture but our own files; in no frame; no form to elsewhere; nothing kept by caches.
Put on by `guard`.
"""

from collections.abc import Mapping

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

ALWAYS: Mapping[str, str] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

NOT_KEPT = "no-store"
"""Pages may show bodies."""
KEPT = "public, max-age=31536000, immutable"
"""Of static files, whose addresses change with what is in them."""
