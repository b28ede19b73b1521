"""Google's generateContent API."""

from contextc._installed_packages import installed_version
from tests.providers.vendors import TEXT, Vendor

API = "v1beta" if (installed_version("google-genai") or "").startswith("2.") else "v1"
"""The version of the API that the SDK calls by default."""

VENDOR = Vendor(
    spec="gemini:gemini-3.6-flash",
    path=f"/{API}/models/gemini-3.6-flash:streamGenerateContent?alt=sse",
    body={"contents": [{"role": "user", "parts": [{"text": TEXT["content"]}]}]},
    events=[
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "lo"}]}, "finishReason": "STOP"}]},
    ],
    reply={"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]},
    whole_path=f"/{API}/models/gemini-3.6-flash:generateContent",
    package="google.genai",
    variables=("GEMINI_API_KEY",),
)
