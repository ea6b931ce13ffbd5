//! How single values are written on the command line.

/// Reads `250ms`, `5s`, `10m`, `1h`, `7d` as milliseconds, as the configuration does.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    scaled(text, &units)
        .ok_or_else(|| "write a whole number and ms, s, m, h or d, such as 250ms or 5s".to_owned())
}

/// Reads `512B`, `64KiB`, `1GiB` as bytes, as the configuration does.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    let units = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let advice = "write a whole number and B, KiB, MiB, GiB or TiB, such as 64KiB";
    scaled(text, &units).ok_or_else(|| advice.to_owned())
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Reads `A..B`, both included, either of which may be left out.
pub(crate) fn id_range(text: &str) -> Result<(Option<u64>, Option<u64>), String> {
    let advice = || "write FIRST..LAST, FIRST.. or ..LAST, such as 10..20".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(advice)?;
    let id =
        |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| advice()) };
    Ok((id(first)?, id(last)?))
}

/// Reads `KEY=VALUE`, the value as JSON if it is some, else as text.
pub(crate) fn key_value(text: &str) -> Result<(String, serde_json::Value), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(duration_ms("250ms"), Ok(250));
        assert_eq!(duration_ms("7d"), Ok(604_800_000));
        assert_eq!(duration_ms("0"), Ok(0));
        assert_eq!(size_bytes("64KiB"), Ok(65_536));
        for bad in ["", "5", "s", "-5s", "1.5s", "5 s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_may_be_open() {
        assert_eq!(id_range("2..5"), Ok((Some(2), Some(5))));
        assert_eq!(id_range("2.."), Ok((Some(2), None)));
        assert_eq!(id_range("..5"), Ok((None, Some(5))));
        assert!(id_range("5").is_err() && id_range("a..b").is_err());
    }

    #[test]
    fn values_are_json_or_text() {
        assert_eq!(key_value("a=5"), Ok(("a".into(), 5.into())));
        assert_eq!(key_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(key_value("a="), Ok(("a".into(), "".into())));
        assert!(key_value("a").is_err());
    }
}
