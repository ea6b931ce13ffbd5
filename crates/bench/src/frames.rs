//! Where frames begin and end, and which are transfers, with no more than a look at each (part 2, section 2.3).

use bytes::{Bytes, BytesMut};

/// The largest frame that is taken, in bytes.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// The least bytes of a frame: its header.
const HEADER: usize = 8;

/// How the body of a transfer begins: a described value with the small descriptor 0x14 (part 2, section 2.7.5).
const TRANSFER: [u8; 3] = [0x00, 0x53, 0x14];

/// What stands at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Transfer frames, one behind the other.
    Transfers {
        /// The frames as they came.
        bytes: Bytes,
        /// How many frames.
        count: u32,
    },
    /// One frame of any other kind.
    Other(Bytes),
}

/// A frame with a size that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

/// Takes all transfers at the front, or one other frame; `None` while no frame is complete.
pub(crate) fn next_piece(input: &mut BytesMut) -> Result<Option<Piece>, BadFrame> {
    let (mut end, mut count) = (0, 0);
    loop {
        let rest = input.get(end..).unwrap_or_default();
        let Some(frame) = first_frame(rest)? else { break };
        if !is_transfer(frame) {
            if count == 0 {
                return Ok(Some(Piece::Other(input.split_to(frame.len()).freeze())));
            }
            break;
        }
        end += frame.len();
        count += 1;
    }
    Ok((count > 0).then(|| Piece::Transfers { bytes: input.split_to(end).freeze(), count }))
}

fn first_frame(input: &[u8]) -> Result<Option<&[u8]>, BadFrame> {
    let Some(size) = input.first_chunk::<4>() else { return Ok(None) };
    let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| BadFrame)?;
    if !(HEADER..=MAX_FRAME).contains(&size) {
        return Err(BadFrame);
    }
    Ok(input.get(..size))
}

fn is_transfer(frame: &[u8]) -> bool {
    let offset = frame.get(4).map_or(0, |words| usize::from(*words) * 4);
    frame.get(offset..).is_some_and(|body| body.starts_with(&TRANSFER))
}

#[cfg(test)]
mod tests {
    use postroad_amqp_codec::frame::{write_empty_frame, write_frame};
    use postroad_amqp_codec::performative::{Flow, Transfer};

    use super::*;

    fn transfer(out: &mut BytesMut) {
        write_frame(out, 0, &Transfer { delivery_id: Some(7), ..Transfer::default() }, 3);
        out.extend_from_slice(b"abc");
    }

    #[test]
    fn transfers_come_together_and_other_frames_alone() {
        let mut wire = BytesMut::new();
        transfer(&mut wire);
        transfer(&mut wire);
        let two = wire.clone().freeze();
        write_frame(&mut wire, 0, &Flow::default(), 0);
        write_empty_frame(&mut wire, 0);
        transfer(&mut wire);
        let partial = wire.split_off(wire.len() - 1);
        assert_eq!(next_piece(&mut wire), Ok(Some(Piece::Transfers { bytes: two, count: 2 })));
        assert!(matches!(next_piece(&mut wire), Ok(Some(Piece::Other(_)))));
        assert!(matches!(next_piece(&mut wire), Ok(Some(Piece::Other(frame))) if frame.len() == 8));
        assert_eq!(next_piece(&mut wire), Ok(None));
        wire.unsplit(partial);
        assert!(matches!(next_piece(&mut wire), Ok(Some(Piece::Transfers { count: 1, .. }))));
        assert!(wire.is_empty());
    }

    #[test]
    fn sizes_without_sense_are_refused() {
        assert_eq!(next_piece(&mut BytesMut::from(&[0, 0, 0, 7][..])), Err(BadFrame));
        assert_eq!(next_piece(&mut BytesMut::from(&[255, 0, 0, 8][..])), Err(BadFrame));
    }
}
