//! What is written reads back, for every type, into both kinds of buffer.

use bytes::BytesMut;
use proptest::prelude::*;

use super::config;
use super::generate::{fields, value};
use super::generate_types::{
    declare, discharge, header, message_id, other_state, performative, properties, sasl_body, source, state,
    target_kind,
};
use crate::{Decode, Encode, Reader};

/// Encodes and decodes again, and checks that skipping finds the same end.
fn round_trip<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
    let mut vec = vec![0xff; 3];
    value.encode(&mut vec);
    let mut bytes_mut = BytesMut::new();
    value.encode(&mut bytes_mut);
    assert_eq!(vec[3..], bytes_mut[..]);
    assert_eq!(&T::decode_all(&bytes_mut).unwrap(), value);
    let mut reader = Reader::new(&bytes_mut);
    assert_eq!(reader.raw_value().unwrap().len(), bytes_mut.len());
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn values(v in value()) {
        round_trip(&v);
    }

    #[test]
    fn field_maps(v in fields()) {
        round_trip(&v);
    }

    #[test]
    fn performatives(v in performative()) {
        round_trip(&v);
    }

    #[test]
    fn delivery_states(v in prop_oneof![3 => state(), 1 => other_state()]) {
        round_trip(&v);
        if let Some(outcome) = v.into_outcome() {
            round_trip(&outcome);
        }
    }

    #[test]
    fn termini(s in source(), t in target_kind()) {
        round_trip(&s);
        round_trip(&t);
    }

    #[test]
    fn sasl_bodies(v in sasl_body()) {
        round_trip(&v);
    }

    #[test]
    fn message_sections(h in header(), p in properties(), id in message_id()) {
        round_trip(&h);
        round_trip(&p);
        round_trip(&id);
    }

    #[test]
    fn transaction_bodies(a in declare(), b in discharge()) {
        round_trip(&a);
        round_trip(&b);
    }

    #[test]
    fn order_and_equality_agree(a in value(), b in value()) {
        prop_assert_eq!(&a, &a);
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.to_bytes() == b.to_bytes());
    }
}
