//! Columns: many numbers of one kind, small where they are alike or grow evenly.
//!
//! A column is a list of blocks over the differences between neighbours (wrapping; the first against 0), each
//! difference in zigzag form so that small ones are short. A block is a varint `count << 1 | literal`: a run
//! (`literal = 0`) has one difference that holds `count` times, a literal block has `count` of them. Drawn in
//! `docs/internals/records.md`.

/// Shorter runs are cheaper within a literal block.
const SHORTEST_RUN: usize = 3;

/// Appends a number in LEB128.
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Takes a number from the front; `None` if there is no whole one of at most 64 bits.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0u32);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Appends a column. Its length is not written: whoever reads it knows.
pub fn put_column(values: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    let mut literal: Vec<u64> = Vec::new();
    let (mut previous, mut run, mut length) = (0u64, 0u64, 0usize);
    for value in values {
        let difference = zigzag(value.wrapping_sub(previous));
        previous = value;
        if length > 0 && difference == run {
            length += 1;
            continue;
        }
        end_run(run, length, &mut literal, out);
        (run, length) = (difference, 1);
    }
    end_run(run, length, &mut literal, out);
    end_literal(&mut literal, out);
}

fn end_run(difference: u64, length: usize, literal: &mut Vec<u64>, out: &mut Vec<u8>) {
    if length < SHORTEST_RUN {
        literal.extend(std::iter::repeat_n(difference, length));
        return;
    }
    end_literal(literal, out);
    put_number((length as u64) << 1, out);
    put_number(difference, out);
}

fn end_literal(literal: &mut Vec<u64>, out: &mut Vec<u8>) {
    if literal.is_empty() {
        return;
    }
    put_number((literal.len() as u64) << 1 | 1, out);
    for difference in literal.drain(..) {
        put_number(difference, out);
    }
}

/// Takes a column of `count` numbers from the front; `None` if the bytes are none.
pub fn take_column(bytes: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    // What is announced is not believed before it is there: a run is short and may stand for much.
    let mut values = Vec::with_capacity(count.min(1 << 16));
    let mut previous = 0u64;
    while values.len() < count {
        let head = take_number(bytes)?;
        let length = usize::try_from(head >> 1).ok().filter(|&length| length > 0)?;
        if length > count - values.len() {
            return None;
        }
        if head & 1 == 0 {
            let step = unzigzag(take_number(bytes)?);
            values.extend((1..=length as u64).map(|nth| previous.wrapping_add(step.wrapping_mul(nth))));
        } else {
            for _ in 0..length {
                previous = previous.wrapping_add(unzigzag(take_number(bytes)?));
                values.push(previous);
            }
        }
        previous = values.last().copied().unwrap_or_default();
    }
    Some(values)
}

/// A difference so that small ones of both signs are small numbers.
const fn zigzag(difference: u64) -> u64 {
    let sign = if difference >> 63 == 1 { u64::MAX } else { 0 };
    (difference << 1) ^ sign
}

const fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(values: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_column(values.iter().copied(), &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn columns_read_back(
            runs in prop::collection::vec((any::<u64>(), 0u64..5, 1usize..50), 0..20),
            noise in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            let mut values = noise;
            for (start, step, length) in runs {
                values.extend((0..length as u64).map(|n| start.wrapping_add(n * step)));
            }
            let bytes = encoded(&values);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_column(&mut rest, values.len()), Some(values));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn arbitrary_bytes_are_a_column_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            count in 0usize..3_000,
        ) {
            let column = take_column(&mut &bytes[..], count);
            prop_assert!(column.is_none_or(|column| column.len() == count));
        }
    }

    #[test]
    fn what_is_alike_takes_no_room() {
        assert_eq!(encoded(&[7; 512]).len(), 5, "a first difference, then a run");
        assert_eq!(encoded(&(1_000..1_512).collect::<Vec<_>>()).len(), 6);
        assert_eq!(take_column(&mut &[0xffu8; 11][..], 1), None, "no number is so long");
        assert_eq!(take_column(&mut &[0u8, 0][..], 1), None, "no block is empty");
    }
}
