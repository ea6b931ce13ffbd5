//! Values on the command line: durations and typed properties.

use std::time::Duration;

use postroad_client::codec::Value;

/// A duration such as `250ms`, `5s`, `2m` or `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("write a number and a unit: 250ms, 5s, 2m, 1h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// An application property, `key=value`: a whole number, a number with a point, `true` or `false` have that type; all
/// else is a string, and so is what stands in single quotes.
pub(super) fn property(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.is_empty() {
        return Err("the key is empty: write KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), typed(value)))
}

fn typed(text: &str) -> Value {
    if let Some(quoted) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return quoted.into();
    }
    if let Ok(flag) = text.parse::<bool>() {
        return flag.into();
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    match text.parse::<f64>() {
        Ok(number) if text.contains('.') && number.is_finite() => number.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "5", "s", "1.2.3s", "-1s", "5x"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn properties_have_types() {
        let value = |text| property(text).map(|(_, value)| value);
        assert_eq!(property("a=b=c"), Ok(("a".to_owned(), "b=c".into())));
        assert_eq!(value("a=5"), Ok(Value::Long(5)));
        assert_eq!(value("a=5.5"), Ok(Value::Double(5.5)));
        assert_eq!(value("a=true"), Ok(Value::Bool(true)));
        assert_eq!(value("a='5'"), Ok("5".into()));
        assert_eq!(value("a="), Ok("".into()));
        assert_eq!(value("a=inf"), Ok("inf".into()));
        assert!(value("a").is_err() && value("=1").is_err());
    }
}
