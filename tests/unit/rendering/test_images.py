"""Decoding pictures: every kind, every bound, and nothing that is cut short."""

import io
import struct
import time
import tracemalloc

import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.rendering.image_header import ImageError, read_header
from onward.rendering.images import MOST_PIXELS, decode, decode_url
from tests.pictures import animation, chunk, data_url, picture, png

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


def saved(image: PIL.Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.covers("TC-10")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(24, 16), (1, 1), (3, 200)])
def test_every_kind_is_decoded_as_pillow_does(kind: str, size: tuple[int, int]):
    data = picture(kind, size=size)
    image = decode_url(data_url(data, KINDS[kind]))
    assert (image.width, image.height) == size
    with PIL.Image.open(io.BytesIO(data)) as expected:
        assert image.rgb == expected.convert("RGB").tobytes()
    assert len(image.rgb) == 3 * size[0] * size[1]


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"quality": 50}, {"quality": 80, "exif": b"Exif\0\0"}]
)
def test_headers_of_every_webp(options):
    header = read_header(picture("WEBP", size=(321, 123), **options))
    assert (header.kind, header.width, header.height) == ("WEBP", 321, 123)


def test_a_progressive_jpeg_with_much_in_front_of_its_frame():
    data = picture(
        "JPEG", size=(40, 30), progressive=True, icc_profile=b"\0" * 70_000, comment=b"\xff\xc0" * 50
    )
    assert (decode(data).width, decode(data).height) == (40, 30)


@pytest.mark.covers("TC-10")
def test_of_an_animation_the_first_frame():
    for data in (
        animation((255, 0, 0), (0, 0, 255)),
        saved(
            PIL.Image.new("RGB", (8, 8), (255, 0, 0)),
            "WEBP",
            save_all=True,
            lossless=True,
            append_images=[PIL.Image.new("RGB", (8, 8), (0, 0, 255))],
        ),
    ):
        assert decode(data).rgb == bytes([255, 0, 0]) * 64


def test_transparency_lies_on_white():
    clear = PIL.Image.new("RGBA", (2, 1), (9, 9, 9, 0))
    clear.putpixel((1, 0), (10, 20, 30, 255))
    assert decode(saved(clear)).rgb == bytes([255, 255, 255, 10, 20, 30])
    grey = PIL.Image.new("LA", (1, 1), (0, 0))
    assert decode(saved(grey)).rgb == bytes([255] * 3)


def test_16_bits_keep_their_upper_half():
    assert decode(saved(PIL.Image.new("I;16", (1, 1), 0x4321))).rgb == bytes([0x43] * 3)


def test_a_picture_that_lies_is_stood_upright():
    image = PIL.Image.new("RGB", (2, 1), (255, 0, 0))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned = decode(saved(image, exif=exif))
    assert (turned.width, turned.height) == (1, 2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no PNG"),
        (b"hello, world", "is no PNG"),
        (b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', "is no PNG"),
        (b"RIFF\0\0\0\0AVI LIST", "is no PNG"),
        (b"BM" + bytes(60), "is no PNG"),
        (png(0, 0), "shows nothing"),
        (png(0, 5), "shows nothing"),
        (png(5, 0), "shows nothing"),
        (png(5000, 20), "200 times"),
        (b"\x89PNG\r\n\x1a\n", "cut short"),
        (b"\xff\xd8\xff", "cut short"),
        (b"\xff\xd8\xff\xda", "no frame header"),
        (b"\xff\xd8abc", "broken"),
        (b"GIF89a", "cut short"),
        (png(4, 4, b"nothing"), "is no valid PNG"),
    ],
)
def test_what_is_no_picture(data: bytes, words: str):
    with pytest.raises(ImageError, match=words):
        decode(data)


@pytest.mark.fault("D21")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_is_cut_short(kind: str, share: float):
    data = picture(kind, size=(64, 64))
    with pytest.raises(ImageError):
        decode(data[: int(len(data) * share)])


@pytest.mark.fault("D21")
def test_another_type_than_it_says():
    with pytest.raises(ImageError, match="says that it is image/png, but holds a JPEG"):
        decode_url(data_url(picture("JPEG"), "image/png"))
    assert decode_url(data_url(picture("JPEG"), "image/jpg")).width == 24


@pytest.mark.parametrize("url", ["http://127.0.0.1/a.png", "data:image/png,abc", "data:image/png;base64,%%%"])
def test_urls_that_hold_no_image(url: str):
    with pytest.raises(ImageError):
        decode_url(url)


def bomb_gif() -> bytes:
    """Its header says 1 x 1, its frame 16000 x 16000."""
    frame = b"," + struct.pack("<HHHH", 0, 0, 16_000, 16_000) + b"\x00\x02\x02\x4c\x01\x00"
    return b"GIF89a" + struct.pack("<HH", 1, 1) + b"\x80\x00\x00" + bytes(6) + frame + b";"


@pytest.mark.fault("D21")
@pytest.mark.parametrize(
    "data",
    [
        png(20_000, 20_000, b""),
        png(2**31 - 1, 2**31 - 1, b""),
        png(MOST_PIXELS // 4096 + 1, 4096, b""),
        bomb_gif(),
        b"RIFF\x40\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\x3f\x00\xff\x3f\x00" + bytes(40),
        # A second header, larger than the first.
        png(8, 8)[:33]
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 16_000, 16_000, 8, 0, 0, 0, 0))
        + png(8, 8)[33:],
    ],
    ids=["png", "largest png", "one row more", "gif frame", "webp", "second header"],
)
def test_bombs_are_refused_before_they_go_off(data: bytes):
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises(ImageError):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
    assert time.process_time() - started < 5  # a bomb that goes off takes minutes, or the memory


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    at=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_damage_never_raises_anything_else(kind: str, at: int, byte: int, cut: bool):
    data = bytearray(picture(kind))
    at %= len(data)
    data[at] = byte
    try:
        image = decode(bytes(data[: at + 1] if cut else data))
    except ImageError:
        return
    assert len(image.rgb) == 3 * image.width * image.height
