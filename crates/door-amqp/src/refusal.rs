//! How a refusal of the engine is told to an AMQP peer: one table, one form (README U-13).

use postroad_amqp_codec::error::condition;
use postroad_amqp_codec::{AmqpError, Fields, Symbol, Value};
use postroad_model::refusal::Refusal;

/// The error of a refusal: the condition of its code, its sentence, and `info` with `reason` (symbol), `mq-code` (uint,
/// where there is one) and `object` (string) (README U-13; addressing 6).
#[must_use]
pub fn amqp_error(refusal: &Refusal) -> AmqpError {
    let mut info = Fields::new();
    info.insert("reason", Symbol::from_static(refusal.code.as_str()));
    if let Some(code) = refusal.code.mq_code() {
        info.insert("mq-code", code);
    }
    info.insert("object", refusal.object.as_str());
    AmqpError {
        condition: Symbol::from_static(refusal.code.amqp_condition()),
        description: Some(refusal.message.clone()),
        info: Some(info),
    }
}

/// The error that tells a peer of an extension or a feature that this broker does not offer (ERR-12).
pub(crate) fn not_implemented(text: &str) -> AmqpError {
    with_reason(condition::NOT_IMPLEMENTED, "NOT_SUPPORTED", text)
}

/// The error for a field that makes no sense.
pub(crate) fn invalid_field(field: &str, text: &str) -> AmqpError {
    let mut error = with_reason(condition::INVALID_FIELD, "BAD_VALUE", text);
    if let (Some(info), Ok(field)) = (&mut error.info, Symbol::new(field)) {
        info.insert("invalid-field", field);
    }
    error
}

/// What a second connection of a client id is told (AM-2): Qpid JMS knows it by `invalid-field` = `container-id`.
pub(crate) fn client_id_in_use(refusal: &Refusal) -> AmqpError {
    let mut error = amqp_error(refusal);
    error.info.get_or_insert_default().insert("invalid-field", Symbol::from_static("container-id"));
    error
}

pub(crate) fn with_reason(condition: Symbol, reason: &'static str, text: &str) -> AmqpError {
    let mut info = Fields::new();
    info.insert("reason", Value::Symbol(Symbol::from_static(reason)));
    AmqpError { condition, description: Some(text.to_owned()), info: Some(info) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::refusal::Code;

    #[test]
    fn every_code_has_its_condition_and_its_word() {
        for &code in Code::ALL {
            let error = amqp_error(&Refusal::new(code, "ORDERS", "no"));
            assert_eq!(error.condition, code.amqp_condition());
            let info = error.info.unwrap();
            assert_eq!(info.get("reason").and_then(Value::as_str), Some(code.as_str()));
            assert_eq!(info.get("object").and_then(Value::as_str), Some("ORDERS"));
            assert_eq!(info.get("mq-code").and_then(Value::as_u64), code.mq_code().map(u64::from));
        }
    }
}
