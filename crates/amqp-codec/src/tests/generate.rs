//! Random values of every type.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::value::Array;
use crate::{Fields, Map, Symbol, Value};

pub(crate) fn text() -> BoxedStrategy<String> {
    prop_oneof![8 => ".{0,12}", 1 => "[a-zé€]{240,270}"].boxed()
}

pub(crate) fn symbol() -> BoxedStrategy<Symbol> {
    prop_oneof![8 => "[ -~]{0,30}", 1 => "[a-z]{250,260}"]
        .prop_map(|text| Symbol::new(&text).unwrap())
        .boxed()
}

pub(crate) fn binary() -> BoxedStrategy<Bytes> {
    prop_oneof![8 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 250..260)].prop_map(Bytes::from).boxed()
}

/// Whole numbers of all sizes, so that small encodings get their share.
pub(crate) fn uint() -> BoxedStrategy<u32> {
    prop_oneof![Just(0), 0..300_u32, any::<u32>()].boxed()
}

pub(crate) fn ulong() -> BoxedStrategy<u64> {
    prop_oneof![Just(0), 0..300_u64, any::<u64>()].boxed()
}

/// One strategy for each scalar type.
pub(crate) fn scalars() -> Vec<BoxedStrategy<Value>> {
    vec![
        Just(Value::Null).boxed(),
        any::<bool>().prop_map(Value::Bool).boxed(),
        any::<u8>().prop_map(Value::Ubyte).boxed(),
        any::<u16>().prop_map(Value::Ushort).boxed(),
        uint().prop_map(Value::Uint).boxed(),
        ulong().prop_map(Value::Ulong).boxed(),
        any::<i8>().prop_map(Value::Byte).boxed(),
        any::<i16>().prop_map(Value::Short).boxed(),
        prop_oneof![-200..200_i32, any::<i32>()].prop_map(Value::Int).boxed(),
        prop_oneof![-200..200_i64, any::<i64>()].prop_map(Value::Long).boxed(),
        any::<f32>().prop_map(Value::Float).boxed(),
        any::<f64>().prop_map(Value::Double).boxed(),
        any::<[u8; 4]>().prop_map(Value::Decimal32).boxed(),
        any::<[u8; 8]>().prop_map(Value::Decimal64).boxed(),
        any::<[u8; 16]>().prop_map(Value::Decimal128).boxed(),
        any::<char>().prop_map(Value::Char).boxed(),
        any::<i64>().prop_map(Value::Timestamp).boxed(),
        any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        binary().prop_map(Value::Binary).boxed(),
        text().prop_map(Value::String).boxed(),
        symbol().prop_map(Value::Symbol).boxed(),
    ]
}

pub(crate) fn scalar() -> BoxedStrategy<Value> {
    proptest::strategy::Union::new(scalars()).boxed()
}

fn descriptor() -> BoxedStrategy<Value> {
    // Far from the descriptors of the specification, which the typed decoders know.
    prop_oneof![
        (0x1000..u64::MAX).prop_map(Value::Ulong),
        "x:[a-z]{1,20}".prop_map(|name| Symbol::new(&name).unwrap().into())
    ]
    .boxed()
}

/// Arrays of scalars, without descriptors.
pub(crate) fn scalar_array() -> BoxedStrategy<Value> {
    (0..scalars().len())
        .prop_flat_map(|kind| vec(scalars().swap_remove(kind), 0..6))
        .prop_map(|elements| Value::Array(Array::new(elements).unwrap()))
        .boxed()
}

fn map_of(range: Range, value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Map> {
    let key = scalar().prop_map(move |key| match key {
        Value::Timestamp(time) if range == Range::Shared => Value::Long(time),
        key => key,
    });
    vec((key, value), 0..5).prop_map(|entries| entries.into_iter().fold(Map::new(), insert)).boxed()
}

fn insert(mut map: Map, (key, value): (Value, Value)) -> Map {
    map.insert(key, value);
    map
}

/// Which values to generate. The other implementation reads and writes arrays in some places only, and takes a
/// timestamp that follows a timestamp in a map for a long.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Range {
    Shared,
    Whole,
}

/// Any value, nested a few levels deep.
pub(crate) fn value_with(range: Range) -> BoxedStrategy<Value> {
    let leaf = match range {
        Range::Shared => scalar(),
        Range::Whole => prop_oneof![6 => scalar(), 1 => scalar_array()].boxed(),
    };
    let nest = move |inner: BoxedStrategy<Value>| {
        let list = vec(inner.clone(), 0..6).prop_map(Value::List).boxed();
        let map = map_of(range, inner.clone()).prop_map(Value::Map).boxed();
        let described = (descriptor(), inner).prop_map(|(d, v)| Value::described(d, v)).boxed();
        match range {
            Range::Shared => prop_oneof![list, map, described].boxed(),
            Range::Whole => {
                prop_oneof![list.clone(), map.clone(), described, compound_array(list, map)].boxed()
            }
        }
    };
    leaf.prop_recursive(4, 40, 6, nest).boxed()
}

/// Described or plain arrays of lists, maps or arrays.
fn compound_array(list: BoxedStrategy<Value>, map: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let elements = prop_oneof![vec(list, 0..4), vec(map, 0..4), vec(scalar_array(), 0..4)];
    (vec(descriptor(), 0..3), elements)
        .prop_map(|(descriptors, elements)| Array::described(descriptors, elements).unwrap().into())
        .boxed()
}

pub(crate) fn value() -> BoxedStrategy<Value> {
    value_with(Range::Whole)
}

/// A `fields` map without repeated keys.
pub(crate) fn fields() -> BoxedStrategy<Fields> {
    vec((symbol(), value_with(Range::Shared)), 0..4)
        .prop_map(|entries| {
            let mut fields = Fields::new();
            entries.into_iter().for_each(|(key, value)| fields.insert(key, value));
            fields
        })
        .boxed()
}

pub(crate) fn symbols() -> BoxedStrategy<Vec<Symbol>> {
    vec(symbol(), 0..4).boxed()
}

/// A map with text keys, as application properties are.
pub(crate) fn properties_map() -> BoxedStrategy<Map> {
    vec(("[a-z]{1,6}".prop_map(Value::String), scalar()), 0..8)
        .prop_map(|entries| entries.into_iter().fold(Map::new(), insert))
        .boxed()
}

/// A map with symbol keys, as annotations are.
pub(crate) fn annotations_map() -> BoxedStrategy<Map> {
    fields().prop_map(|fields| fields.0.into_iter().map(|(k, v)| (k.into(), v)).collect()).boxed()
}
