"""Text, tool definitions and identifiers for traces. All of it follows from a seed and a subject."""

import base64
import hashlib
from random import Random
from typing import Any, NamedTuple

JSONObject = dict[str, Any]


class Subject(NamedTuple):
    """The vocabulary of one kind of work: what its texts, files and tools are about."""

    role: str
    things: tuple[str, ...]
    actions: tuple[str, ...]
    qualities: tuple[str, ...]
    files: tuple[str, ...]
    tools: tuple[str, ...]


SUBJECTS = {
    # Subjects of the half `tune`.
    "warehouse": Subject(
        "You are a software engineer who maintains the stock control system of a warehouse.",
        ("pallet", "picking list", "conveyor", "stock count", "carrier label", "loading bay", "barcode", "reservation"),
        ("moves", "rejects", "reserves", "splits", "confirms", "recounts", "prints", "releases"),
        ("damaged", "late", "frozen", "partial", "duplicate", "urgent", "unassigned"),
        ("stock/reserve.py", "labels/print_queue.go", "bays/planner.rs", "api/routes.ts", "db/schema.sql"),
        ("read_file", "edit_file", "run_command", "find_files", "search_text", "write_file", "list_folder", "todo"),
    ),
    "shop": Subject(
        "You are a support agent of an online shop for outdoor equipment. Follow the return policy below.",
        ("order", "refund", "parcel", "voucher", "tent", "invoice", "exchange", "customer account"),
        ("returns", "cancels", "ships", "charges", "replaces", "delays", "confirms", "disputes"),
        ("defective", "unpaid", "international", "discounted", "heavy", "second-hand"),
        ("policy/returns.md", "policy/shipping.md", "faq/payment.md", "faq/sizes.md"),
        ("get_order", "get_customer", "refund_order", "exchange_item", "search_products", "send_mail", "escalate"),
    ),
    "compiler": Subject(
        "You are working on an optimizing compiler for a small systems language.",
        ("basic block", "register", "phi node", "lifetime", "trait", "spill slot", "inlining", "dominator"),
        ("folds", "hoists", "spills", "lowers", "rewrites", "numbers", "merges", "splits"),
        ("redundant", "dead", "volatile", "loop-carried", "generic", "unreachable"),
        ("src/lower.rs", "src/regalloc/linear_scan.rs", "src/ssa/build.rs", "tests/fold.rs", "docs/ir.md"),
        ("read_file", "edit_file", "run_command", "search_text", "apply_patch", "web_fetch", "spawn_agent", "todo"),
    ),
    # Subjects of the half `report`.
    "clinic": Subject(
        "You plan appointments and staff for a group of outpatient clinics.",
        ("appointment", "ward round", "referral", "waiting list", "consultant", "shift", "scan", "discharge letter"),
        ("books", "cancels", "refers", "covers", "overruns", "confirms", "transfers", "postpones"),
        ("overbooked", "fasting", "weekend", "paediatric", "follow-up", "remote"),
        ("rota/2026-w44.csv", "protocols/mri.md", "protocols/intake.md", "sites/north.yaml"),
        ("find_slots", "book_slot", "get_patient", "list_staff", "send_letter", "query_table", "page_on_call"),
    ),
    "engine": Subject(
        "You are a senior engineer on the rendering team of a game studio.",
        ("shader", "mesh", "frame graph", "texture atlas", "shadow map", "draw call", "swap chain", "culling pass"),
        ("allocates", "binds", "stalls", "uploads", "tessellates", "evicts", "resolves", "flushes"),
        ("transparent", "half-resolution", "skinned", "streamed", "bindless", "async"),
        ("Engine/Render/FrameGraph.cpp", "Engine/RHI/Vulkan/Queue.cpp", "Shaders/lighting.hlsl", "Tools/bake.py"),
        ("shell", "apply_patch", "view_image", "update_plan", "grep", "open_file", "profile_capture", "delegate"),
    ),
    "claims": Subject(
        "You review insurance claims for damage to buildings and prepare a decision for a human reviewer.",
        ("claim", "policy holder", "deductible", "water damage", "surveyor", "repair quote", "exclusion", "payout"),
        ("covers", "excludes", "estimates", "approves", "disputes", "inspects", "settles", "reopens"),
        ("storm-related", "underinsured", "pending", "fraudulent", "commercial", "temporary"),
        ("wording/2026-building.txt", "quotes/roof.pdf.txt", "survey/notes.txt", "letters/settlement.txt"),
        ("get_claim", "get_policy", "list_documents", "read_document", "calculate_payout", "ask_surveyor", "add_note"),
    ),
    # Subjects of the set `fresh`.
    "newsroom": Subject(
        "You help the editors of a regional newspaper with research, corrections and the plan of the day.",
        ("headline", "byline", "press release", "interview", "correction", "caption", "archive box", "print run"),
        ("quotes", "corrects", "delays", "verifies", "republishes", "shortens", "withdraws", "credits"),
        ("anonymous", "embargoed", "local", "unverified", "syndicated", "late-breaking"),
        ("desk/plan-monday.md", "archive/1998/box-12.txt", "style/guide.md", "legal/embargo.txt", "feeds/wire.xml"),
        (
            "search_archive",
            "open_article",
            "edit_article",
            "check_fact",
            "list_feeds",
            "send_note",
            "plan_page",
            "todo",
        ),
    ),
    "telescope": Subject(
        "You are a programmer of the control software of a radio telescope.",
        ("dish", "receiver", "beam", "pulsar", "spectrum", "calibration", "baseline", "correlator"),
        ("tracks", "drifts", "saturates", "calibrates", "averages", "flags", "slews", "samples"),
        ("noisy", "polarized", "off-axis", "cold", "interpolated", "saturated"),
        ("control/drive.cpp", "pipeline/flag.py", "pipeline/calibrate.py", "conf/bands.toml", "docs/pointing.rst"),
        (
            "read_file",
            "edit_file",
            "run_shell",
            "grep_code",
            "plot_data",
            "query_archive",
            "spawn_task",
            "write_memory",
        ),
    ),
    "customs": Subject(
        "You classify goods for customs declarations and explain each decision with the tariff's own words.",
        ("tariff heading", "declaration", "certificate of origin", "duty", "quota", "consignment", "seal", "exemption"),
        ("classifies", "exempts", "detains", "assesses", "amends", "revokes", "weighs", "declares"),
        ("preferential", "textile", "perishable", "dual-use", "undervalued", "transit"),
        ("tariff/chapter-62.txt", "rulings/2025-114.txt", "forms/sad.xml", "notes/section-xi.txt"),
        ("find_heading", "get_ruling", "get_consignment", "compute_duty", "list_quotas", "draft_letter", "ask_officer"),
    ),
    # Subjects of the set `check`.
    "railway": Subject(
        "You work on the timetable and signalling software of a regional railway.",
        ("platform", "signal", "timetable", "locomotive", "track circuit", "driver roster", "level crossing", "siding"),
        ("departs", "blocks", "clears", "reroutes", "couples", "brakes", "announces", "cancels"),
        ("single-track", "electrified", "delayed", "diverted", "out-of-service", "seasonal"),
        ("timetable/build.kt", "signals/interlock.ada", "roster/solve.py", "web/board.tsx", "docs/headway.md"),
        ("bash", "view", "replace", "glob", "grep", "fetch_url", "task", "plan"),
    ),
    "orchard": Subject(
        "You advise fruit growers. Answer from the field records and the spraying rules below.",
        (
            "apple row",
            "frost alarm",
            "irrigation valve",
            "harvest bin",
            "pollinator",
            "rootstock",
            "scab",
            "cold store",
        ),
        ("ripens", "prunes", "sprays", "thins", "grafts", "waters", "sorts", "stores"),
        ("organic", "early", "bruised", "dormant", "south-facing", "irrigated"),
        ("fields/north.csv", "rules/copper.md", "weather/frost.json", "stores/cell-4.txt"),
        ("get_field", "get_weather", "list_sprays", "log_harvest", "find_rule", "open_valve", "notify_grower"),
    ),
    "museum": Subject(
        "You catalogue the collection of a museum and answer the questions of curators and lenders.",
        ("accession", "loan", "showcase", "provenance", "conservation report", "crate", "label text", "depot shelf"),
        ("lends", "restores", "dates", "attributes", "insures", "photographs", "catalogues", "unpacks"),
        ("fragile", "unsigned", "gilded", "medieval", "misattributed", "water-damaged"),
        ("catalogue/1890-233.xml", "loans/autumn.csv", "depot/plan.svg", "reports/varnish.md"),
        ("find_object", "get_object", "update_record", "list_loans", "compare_images", "write_label", "ask_curator"),
    ),
}

_SENTENCES = (
    "The {q} {t} {a} when the {u} was closed before {n}.",
    "If a {t} is {q}, the next step {a} it and records the {u} under number {n}.",
    "In {f}, line {n}, the {t} still {a} a {q} {u}.",
    "We measured {n} cases in which a {q} {t} {a} twice.",
    "Do not touch the {u} unless the {t} is {q}; see {f} for the {n} exceptions.",
    "After {n} seconds the {u} {a} and every {q} {t} has to be checked again.",
    "A {t} that {a} without a {u} is {q} by definition, and rule {n} applies.",
    "The report of week {n} lists each {q} {u} together with the {t} that {a} it.",
    "Somebody changed {f}: now the {u} {a} before the {t} is known to be {q}.",
    "For {n} of the entries the {t} was {q}, so the {u} {a} only on request.",
)


class Writer:
    """Writes text about one subject. The same seed gives the same text."""

    def __init__(self, subject: str, seed: str) -> None:
        self.subject = SUBJECTS[subject]
        self.rng = Random(f"{subject}/{seed}")
        self._sentences = [self._sentence() for _ in range(60)]

    def _sentence(self) -> str:
        random, of = self.rng.random, self.subject

        def pick(some: tuple[str, ...]) -> str:
            return some[int(random() * len(some))]

        return pick(_SENTENCES).format(
            q=pick(of.qualities), t=pick(of.things), u=pick(of.things), a=pick(of.actions), f=pick(of.files),
            n=int(random() * 99_000) + 10,
        )  # fmt: skip

    def prose(self, length: int) -> str:
        """Return about `length` characters in paragraphs."""
        found, have = list[str](), 0
        while have < length:
            paragraph = " ".join([self._sentence(), *self.rng.sample(self._sentences, 5)])
            found.append(paragraph)
            have += len(paragraph) + 2
        return "\n\n".join(found)[: max(length, 20)].rstrip()

    def question(self) -> str:
        rng, of = self.rng, self.subject
        ask = rng.choice(("Why is", "Please check", "Find out about", "Can you fix", "Explain", "Have a look at"))
        thing, file = rng.choice(of.things), rng.choice(of.files)
        return f"{ask} the {rng.choice(of.qualities)} {thing} in {file}. {self._sentence()}"

    def output(self, length: int) -> str:
        """Return the output of a tool: numbered lines."""
        first = self.rng.randrange(1, 400)
        lines = self.prose(length).replace("\n\n", " ").split(". ")
        return "\n".join([f"{first + at:6d}\t{line}" for at, line in enumerate(lines)])

    def arguments(self, name: str) -> JSONObject:
        rng, of = self.rng, self.subject
        return {
            "path": f"{rng.choice(of.files)}",
            "query": f"{rng.choice(of.qualities)} {rng.choice(of.things)}",
            "limit": rng.randrange(5, 500),
            "options": {"recursive": rng.random() < 0.5, "context": rng.randrange(9), "kind": name[:12]},
        }

    def identifier(self, prefix: str, size: int = 24) -> str:
        return prefix + hashlib.blake2b(str(self.rng.random()).encode(), digest_size=size // 2).hexdigest()

    def signature(self, size: int = 180) -> str:
        return base64.b64encode(self.rng.randbytes(size)).decode()

    def image(self, size: int = 900) -> str:
        """Return the base64 of bytes that begin like a PNG."""
        return base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + self.rng.randbytes(size)).decode()

    def tools(self, count: int = 0, length: int = 900) -> list[JSONObject]:
        """Return tool definitions: name, description, schema."""
        names = self.subject.tools[: count or None]
        return [self.tool(name, length) for name in names]

    def tool(self, name: str, length: int = 900) -> JSONObject:
        return {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()}. {self.prose(length)}",
            "schema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": f"The file or record. {self._sentence()}"},
                    "query": {"type": "string", "description": self._sentence()},
                    "limit": {"type": "integer", "minimum": 1, "maximum": self.rng.randrange(100, 5000)},
                    "options": {
                        "type": "object",
                        "properties": {
                            "recursive": {"type": "boolean"},
                            "context": {"type": "integer"},
                            "kind": {"type": "string", "enum": list(self.subject.qualities)},
                        },
                    },
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        }
