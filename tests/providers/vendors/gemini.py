"""Google's generateContent API."""

from tests.providers.vendors import TEXT, Vendor

VENDOR = Vendor(
    spec="gemini:gemini-3.6-flash",
    path="/v1/models/gemini-3.6-flash:streamGenerateContent?alt=sse",
    body={"contents": [{"role": "user", "parts": [{"text": TEXT["content"]}]}]},
    events=[
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "lo"}]}, "finishReason": "STOP"}]},
    ],
    reply={"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]},
    whole_path="/v1/models/gemini-3.6-flash:generateContent",
    package="google.genai",
    variables=("GEMINI_API_KEY",),
)
