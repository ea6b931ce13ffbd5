//! Number literals, in the syntax of Java (Java Language Specification, 3.10.1 and 3.10.2).

/// A number as it stands in the source, without its sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// An exact number in the range of `long`.
    Long(i64),
    /// 2^63 written in decimal: an exact number only behind a minus sign, as in Java.
    LongMinimum,
    /// An approximate number in the range of `double`, finite.
    Double(f64),
}

/// Reads a whole literal; `text` begins with a digit, or with a point and a digit.
///
/// The error says what is wrong with the literal, in words that follow its text.
pub(crate) fn parse(text: &str) -> Result<Number, &'static str> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return if digits.contains(['.', 'p', 'P']) { hexadecimal_double(digits) } else { bits(digits, 16) };
    }
    if let Some(digits) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) {
        return bits(digits, 2);
    }
    if text.contains(['.', 'e', 'E']) || text.ends_with(['f', 'F', 'd', 'D']) {
        return decimal_double(text);
    }
    match text.strip_prefix('0') {
        Some(digits) if !without_long_suffix(digits).is_empty() => bits(digits.trim_start_matches('_'), 8),
        _ => decimal_long(text),
    }
}

fn without_long_suffix(text: &str) -> &str {
    text.strip_suffix(['l', 'L']).unwrap_or(text)
}

fn decimal_long(text: &str) -> Result<Number, &'static str> {
    let digits = without_underscores(without_long_suffix(text), 10)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("is not a number; put a space between a number and a word");
    }
    match digits.parse::<u64>() {
        Ok(0x8000_0000_0000_0000) => Ok(Number::LongMinimum),
        Ok(value) => i64::try_from(value).map(Number::Long).map_err(|_| TOO_LARGE),
        Err(_) => Err(TOO_LARGE),
    }
}

const TOO_LARGE: &str =
    "is too large for an exact number (64 bits, signed); write it with a point, as in 1e19";

/// Hexadecimal, octal and binary literals give the 64 bits, so that the highest one makes the value negative.
fn bits(text: &str, radix: u32) -> Result<Number, &'static str> {
    let digits = without_underscores(without_long_suffix(text), radix)?;
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(match radix {
            16 => "is not a hexadecimal number (0x, then digits 0 to 9 and a to f)",
            8 => "is not an octal number (digits 0 to 7); a decimal number has no leading 0",
            _ => "is not a binary number (0b, then digits 0 and 1)",
        });
    }
    let value = u64::from_str_radix(&digits, radix).map_err(|_| "has more than 64 bits")?;
    Ok(Number::Long(value.cast_signed()))
}

fn decimal_double(text: &str) -> Result<Number, &'static str> {
    const SHAPE: &str = "is not a number; an approximate number looks like 7.5, 7e3 or 57.9E-2";
    let (body, single) = without_float_suffix(text);
    let body = without_underscores(body, 10)?;
    let (mantissa, exponent) = body.split_once(['e', 'E']).unwrap_or((&body, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_digits = || whole.bytes().chain(fraction.bytes());
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let well_formed = mantissa_digits().all(|b| b.is_ascii_digit())
        && mantissa_digits().next().is_some()
        && !exponent.is_empty()
        && exponent.bytes().all(|b| b.is_ascii_digit());
    if !well_formed {
        return Err(SHAPE);
    }
    let value = if single { body.parse::<f32>().map(f64::from) } else { body.parse::<f64>() };
    in_range(value.map_err(|_| SHAPE)?, mantissa_digits().all(|b| b == b'0'))
}

/// Java refuses a literal that rounds to infinity, and one that is not zero but rounds to zero.
fn in_range(value: f64, written_as_zero: bool) -> Result<Number, &'static str> {
    if !value.is_finite() {
        return Err("is too large for an approximate number");
    }
    if value == 0.0 && !written_as_zero {
        return Err("is too close to zero for an approximate number");
    }
    Ok(Number::Double(value))
}

/// The literal without its suffix, and whether the suffix asks for single precision.
fn without_float_suffix(text: &str) -> (&str, bool) {
    match text.strip_suffix(['f', 'F']) {
        Some(body) => (body, true),
        None => (text.strip_suffix(['d', 'D']).unwrap_or(text), false),
    }
}

/// Underscores may stand between digits, and only there.
fn without_underscores(text: &str, radix: u32) -> Result<String, &'static str> {
    let mut digits = String::with_capacity(text.len());
    let mut previous = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if c != '_' {
            digits.push(c);
        } else {
            let digit = |c: char| c == '_' || c.is_digit(radix);
            if !previous.is_some_and(digit) || !characters.peek().copied().is_some_and(digit) {
                return Err("has an underscore that is not between two digits");
            }
        }
        previous = Some(c);
    }
    Ok(digits)
}

/// What stands behind `0x` in a literal such as `0x1.8p3`: digits times a power of two.
fn hexadecimal_double(text: &str) -> Result<Number, &'static str> {
    const SHAPE: &str = "is not a number; a hexadecimal approximate number looks like 0x1.8p3";
    let (body, single) = without_float_suffix(text);
    let (mantissa, exponent) = body.split_once(['p', 'P']).ok_or(SHAPE)?;
    let exponent = without_underscores(exponent, 10)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (whole, fraction) = (without_underscores(whole, 16)?, without_underscores(fraction, 16)?);
    let digits = || whole.chars().chain(fraction.chars());
    if digits().next().is_none() || !exponent.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(SHAPE);
    }
    let mut scale =
        exponent.parse::<i32>().map_err(|_| "has an exponent that is no number, or far too large")?;
    scale = scale.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX).saturating_mul(4));
    let mut significand = 0_u64;
    for c in digits() {
        let digit = u64::from(c.to_digit(16).ok_or(SHAPE)?);
        if significand >> 60 == 0 {
            significand = significand << 4 | digit;
        } else {
            // 61 bits are more than any precision needs; of the others only whether one is set matters.
            significand |= u64::from(digit != 0);
            scale = scale.saturating_add(4);
        }
    }
    let (precision, least) = if single { (24, -149) } else { (53, -1074) };
    let value = rounded(significand, scale, precision, least);
    let value = if single && value > f64::from(f32::MAX) { f64::INFINITY } else { value };
    in_range(value, significand == 0)
}

/// `significand` × 2^`scale`, rounded half to even to `precision` bits and to a multiple of 2^`least`.
fn rounded(significand: u64, scale: i32, precision: i32, least: i32) -> f64 {
    let width = i32::try_from(u64::BITS - significand.leading_zeros()).unwrap_or(0);
    let dropped = (width - precision).max(least.saturating_sub(scale)).max(0);
    let kept = match u32::try_from(dropped) {
        Ok(0) => significand,
        Ok(bits @ 1..=63) => {
            let (quotient, remainder, half) =
                (significand >> bits, significand & ((1 << bits) - 1), 1_u64 << (bits - 1));
            quotient + u64::from(remainder > half || remainder == half && quotient & 1 == 1)
        }
        Ok(64) => u64::from(significand > 1 << 63),
        _ => 0,
    };
    if kept == 0 {
        return 0.0;
    }
    // At most 53 bits are kept, so this conversion is exact; so is each scaling below until it overflows.
    #[allow(clippy::cast_precision_loss)]
    let mut value = kept as f64;
    let mut exponent = scale.saturating_add(dropped).clamp(-2000, 2000);
    while exponent != 0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        value *= power_of_two(step);
        exponent -= step;
    }
    value
}

/// 2^`exponent`, for an exponent of a normal number.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_numbers() {
        for (text, value) in [
            ("0", 0),
            ("0L", 0),
            ("57", 57),
            ("57l", 57),
            ("1_000_000", 1_000_000),
            ("9223372036854775807", i64::MAX),
            ("0x1F", 31),
            ("0XfFL", 255),
            ("0xFFFFFFFFFFFFFFFF", -1),
            ("0x7fff_ffff_ffff_ffff", i64::MAX),
            ("017", 15),
            ("0_7", 7),
            ("00", 0),
            ("0b1010", 10),
        ] {
            assert_eq!(parse(text), Ok(Number::Long(value)), "{text}");
        }
        assert_eq!(parse("9223372036854775808"), Ok(Number::LongMinimum));
    }

    #[test]
    fn approximate_numbers() {
        for (text, value) in [
            ("7.", 7.0),
            (".5", 0.5),
            ("95.7", 95.7),
            ("7E3", 7000.0),
            ("57.9E-2", 0.579),
            ("7.e+3", 7000.0),
            ("1f", 1.0),
            ("0.1F", f64::from(0.1_f32)),
            ("1d", 1.0),
            ("09.5", 9.5),
            ("0e0", 0.0),
            ("1_0.0_1", 10.01),
            ("0x1.8p3", 12.0),
            ("0x.8p0", 0.5),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.00000000000008000000000001p0", 1.0 + f64::EPSILON),
            ("0x1.8p-1074", f64::from_bits(2)),
            ("0x0.0p99", 0.0),
            ("0x1.000001p0f", 1.0),
            ("0x1p4d", 16.0),
        ] {
            assert_eq!(parse(text), Ok(Number::Double(value)), "{text}");
        }
    }

    #[test]
    fn what_java_refuses_is_refused() {
        for text in [
            "9223372036854775809",
            "99999999999999999999999",
            "08",
            "0x",
            "0xg",
            "0x1_",
            "0x_1",
            "1_",
            "0b2",
            "0x1FFFFFFFFFFFFFFFF",
            "5AND",
            "5a",
            "1.2.3",
            "1e",
            "1e+",
            "1e999",
            "1e-999",
            "1e39f",
            "1._5",
            "1_.5",
            "1e1.5",
            "0x1.8",
            "0xp1",
            "0x.p1",
            "0x1p",
            "0x1p+",
            "0x1pa",
            "0x1p9999",
            "0x1p128f",
            "0x1p-9999",
            "0x1p-1075",
            "0x1p99999999999",
            "1.5L",
            "1ff",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(crate::tests::config(256))]

        #[test]
        fn hexadecimal_doubles_are_read_back_exactly(bits in 0_u64..0x7ff0_0000_0000_0000) {
            let value = f64::from_bits(bits);
            let (exponent, fraction) = (bits >> 52, bits & 0xf_ffff_ffff_ffff);
            let text = match exponent {
                0 => format!("0x0.{fraction:013x}p-1022"),
                _ => format!("0x1.{fraction:013x}p{}", i64::try_from(exponent).unwrap() - 1023),
            };
            proptest::prop_assert_eq!(parse(&text), Ok(Number::Double(value)));
        }

        #[test]
        fn hexadecimal_singles_round_as_a_cast_does(bits in 0_u64..0x4800_0000_0000_0000) {
            let value = f64::from_bits(bits & !0xff);
            #[allow(clippy::cast_possible_truncation)]
            let single = f64::from(value as f32);
            let (exponent, fraction) = (bits >> 52, bits & 0xf_ffff_ffff_ff00);
            let text = format!("0x1.{fraction:013x}p{}f", i64::try_from(exponent).unwrap() - 1023);
            let expected = (exponent > 0 && single != 0.0 && single.is_finite()).then_some(Number::Double(single));
            proptest::prop_assume!(exponent > 0);
            proptest::prop_assert_eq!(parse(&text).ok(), expected);
        }
    }
}
