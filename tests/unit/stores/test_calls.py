"""What goes over the socket to the stores."""

from onward.stores import calls


def test_frames_however_they_arrive():
    frames = [bytes(calls.encode(number, number % 3, "x" * (number * 7))) for number in range(20)]
    whole = b"".join(frames)
    for size in (1, 3, 10, 100, len(whole)):
        reader = calls.FrameReader()
        found = [
            frame
            for start in range(0, len(whole), size)
            for frame in reader.feed(whole[start : start + size])
        ]
        assert [(number, code) for number, code, _ in found] == [(n, n % 3) for n in range(20)]
        assert b"".join(content[-1:] for _, _, content in found[1:]) == b"x" * 19
