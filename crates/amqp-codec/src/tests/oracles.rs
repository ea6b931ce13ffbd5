//! Another implementation reads what this one writes, writes it again, and this one reads that: nothing may change.

use std::fmt::Debug;

use fe2o3_amqp_types::definitions::Error as PeerError;
use fe2o3_amqp_types::messaging as peer_messaging;
use fe2o3_amqp_types::performatives as peer;
use fe2o3_amqp_types::sasl as peer_sasl;
use proptest::prelude::*;
use serde_amqp::Value as PeerValue;
use serde_amqp::primitives::Symbol as PeerSymbol;

use super::config;
use super::generate::{Range, scalar_array, value_with};
use super::generate_types as types;
use crate::performative::{Close, Disposition, End, Transfer};
use crate::sasl::SaslBody;
use crate::state::DeliveryState;
use crate::terminus::TargetKind;
use crate::{Decode, Encode, Value};

/// Sends a value through type `P` of the other implementation and back.
fn through_peer<P, T>(value: &T)
where
    P: serde::de::DeserializeOwned + serde::Serialize,
    T: Encode + Decode + PartialEq + Debug,
{
    let ours = value.to_bytes();
    let read: P = serde_amqp::from_slice(&ours).unwrap_or_else(|e| panic!("{e}: {value:?} as {ours:02x?}"));
    let theirs = serde_amqp::to_vec(&read).unwrap();
    let back = T::decode_all(&theirs).unwrap_or_else(|e| panic!("{e}: {value:?} as {theirs:02x?}"));
    assert_eq!(&back, value);
}

/// An empty array has no element type here, but needs one there; nulls are written there as if they had bytes, and
/// strings with their length in characters.
fn peer_can_hold(array: &Value) -> bool {
    let Value::Array(array) = array else { return false };
    let holds = |element: &Value| !element.is_null() && element.as_str().is_none_or(str::is_ascii);
    !array.elements().is_empty() && array.elements().iter().all(holds)
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn values(v in value_with(Range::Shared)) {
        through_peer::<PeerValue, Value>(&v);
    }

    #[test]
    fn arrays(v in scalar_array()) {
        if peer_can_hold(&v) {
            through_peer::<PeerValue, Value>(&v);
        }
    }

    #[test]
    fn open_and_begin(a in types::open(), b in types::begin()) {
        through_peer::<peer::Open, _>(&a);
        through_peer::<peer::Begin, _>(&b);
    }

    #[test]
    fn attach_and_flow(a in types::attach(), b in types::flow()) {
        let mut a = a;
        if let Some(TargetKind::Coordinator(coordinator)) = &mut a.target {
            // The other implementation knows no other capabilities than those of the specification.
            coordinator.capabilities.fill(crate::transaction::capability::LOCAL);
        }
        through_peer::<peer::Attach, _>(&a);
        through_peer::<peer::Flow, _>(&b);
    }

    #[test]
    fn transfer_and_disposition(a in types::transfer(), b in types::disposition()) {
        through_peer::<peer::Transfer, Transfer>(&a);
        through_peer::<peer::Disposition, Disposition>(&b);
    }

    #[test]
    fn detach_end_close(a in types::detach(), e in types::error()) {
        through_peer::<peer::Detach, _>(&a);
        through_peer::<PeerError, _>(&e);
        through_peer::<peer::End, _>(&End { error: Some(e.clone()) });
        through_peer::<peer::Close, _>(&Close { error: Some(e) });
    }

    #[test]
    fn states(s in types::state()) {
        through_peer::<peer_messaging::DeliveryState, DeliveryState>(&s);
    }

    #[test]
    fn message_sections(h in types::header(), p in types::properties()) {
        through_peer::<peer_messaging::Header, _>(&h);
        through_peer::<peer_messaging::Properties, _>(&p);
    }

    #[test]
    fn sasl(body in types::sasl_body()) {
        match &body {
            SaslBody::Mechanisms(b) => through_peer::<peer_sasl::SaslMechanisms, _>(b),
            SaslBody::Init(b) => through_peer::<peer_sasl::SaslInit, _>(b),
            SaslBody::Challenge(b) => through_peer::<peer_sasl::SaslChallenge, _>(b),
            SaslBody::Response(b) => through_peer::<peer_sasl::SaslResponse, _>(b),
            SaslBody::Outcome(b) => through_peer::<peer_sasl::SaslOutcome, _>(b),
        }
    }
}

/// The peer's value has the same type and content, not merely the same bytes.
#[test]
fn scalars_mean_the_same() {
    let pairs = [
        (Value::Uint(7), PeerValue::Uint(7)),
        (Value::Ulong(1 << 40), PeerValue::Ulong(1 << 40)),
        (Value::Int(-129), PeerValue::Int(-129)),
        (Value::Long(-1), PeerValue::Long(-1)),
        (Value::Bool(true), PeerValue::Bool(true)),
        (Value::Char('€'), PeerValue::Char('€')),
        (Value::from("text"), PeerValue::String("text".into())),
        (Value::Symbol("name".into()), PeerValue::Symbol(PeerSymbol::from("name"))),
    ];
    for (ours, theirs) in pairs {
        assert_eq!(serde_amqp::from_slice::<PeerValue>(&ours.to_bytes()).unwrap(), theirs);
        assert_eq!(Value::decode_all(&serde_amqp::to_vec(&theirs).unwrap()).unwrap(), ours);
    }
}
