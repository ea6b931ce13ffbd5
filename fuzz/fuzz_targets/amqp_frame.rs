//! Any bytes as a stream of frames: refused, or read, written and read again to the same.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use postroad_amqp_codec::frame::{
    Frame, FrameBody, ProtocolHeader, decode_frame, split_frame, write_empty_frame, write_frame,
    write_sasl_frame,
};

const MAX_FRAME_SIZE: u32 = 4096;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(header)) = ProtocolHeader::decode(data) {
        assert_eq!(header.to_bytes(), data[..8]);
    }
    let mut input = BytesMut::from(data);
    while let Ok(Some(bytes)) = split_frame(&mut input, MAX_FRAME_SIZE) {
        let Ok(frame) = decode_frame(bytes) else { continue };
        let again = decode_frame(write(&frame)).expect("what was written can be read");
        assert_eq!(again, frame);
    }
});

fn write(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    match &frame.body {
        FrameBody::Empty => write_empty_frame(&mut out, frame.channel),
        FrameBody::Amqp { performative, payload } => {
            write_frame(&mut out, frame.channel, performative, payload.len());
            out.extend_from_slice(payload);
        }
        FrameBody::Sasl(body) => {
            write_sasl_frame(&mut out, body);
        }
    }
    out.freeze()
}
