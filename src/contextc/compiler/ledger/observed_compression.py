"""Compression of what observed requests store: each is small, so it is compressed against text that both sides have.

A manifest is compressed against a fixed sample, the wire form of a row against the stored messages of that row, which
contain nearly the same text. The sample is part of the stored format and never changes.
"""

import zlib

PACKED = b"\x01"
SAMPLE = (
    b'"layout":[[1,1,1]],"session":"resp_","fragments":[],"remarks":["The messages could not be decoded ()"],'
    b'"partial":true,"code":400,"status":"error","error":"","gaps":[", "],"inexact":true,"status":"unfinished",'
    b'"status":"unanswered","why":"the client changed an earlier message","why":"the client removed earlier messages",'
    b'"why":"the client inserted a message","why":"compacted by the client","why":"rewound by the client",'
    b'"why":"tools changed","why":"system prompt changed","why":"reasoning settings changed","why":"first request",'
    b'{"request":10,"mode":"observed","epoch":1,"rows":10,"head":"","chain":"","added":1,"new":1,"budget":{"window":200000,'
    b'"system":0,"tools":0,"reserve":0,"margin":0,"limit":null,"used":1,"exact":false,"measured":false,"overhead":0,'
    b'"wanted":0},"shared":1,"shared_bytes":1,"branch":1,"tip":1,"time":17000000,"usage":{"input":1,"output":1,'
    b'"cache_read":1,"cache_write":1,"reasoning":1},"produced":[4294967],"observed":{"marks":{"1":[[1,",\\"cache_control\\":'
    b'{\\"type\\":\\"ephemeral\\"}"]],"2":[[1,",\\"cache_control\\":{\\"type\\":\\"ephemeral\\",\\"ttl\\":\\"1h\\"}"]]},'
    b'"began":17000000,"ended":17000000}}'
)
WINDOW = 1 << 15


def pack_record(record: bytes) -> bytes:
    """Return the stored form of the manifest of an observed request."""
    return PACKED + _deflate(record, SAMPLE)


def unpack_record(stored: bytes) -> bytes:
    """Return a manifest from its stored form, which is not compressed for requests of our own."""
    return _inflate(stored[1:], SAMPLE) if stored[:1] == PACKED else stored


def pack_wire(wire: bytes, messages: bytes) -> bytes:
    """Return the stored form of a row's wire bytes."""
    return PACKED + _deflate(wire, messages[-WINDOW:])


def unpack_wire(stored: bytes, messages: bytes) -> bytes:
    return _inflate(stored[1:], messages[-WINDOW:])


def _deflate(data: bytes, known: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, known)
    return packer.compress(data) + packer.flush()


def _inflate(data: bytes, known: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15, known)
    try:
        return unpacker.decompress(data) + unpacker.flush()
    except zlib.error as error:
        raise ValueError(str(error)) from error
