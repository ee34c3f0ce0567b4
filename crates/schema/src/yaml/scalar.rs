//! What a plain YAML scalar means to Kubernetes: the YAML 1.1 habits of its reader.
//!
//! The API server and kubectl read YAML with go-yaml v2: `yes`, `on` and `y` are booleans, `0644`
//! and `0x1f` integers, `1_000` a thousand, while dates stay texts. The rules stand here alone; the
//! tests hold them against the API server's own answers.

/// A scalar once its meaning is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved {
    /// `null`, `~` or nothing.
    Null,
    /// A boolean in any of its spellings.
    Bool(bool),
    /// An integer that fits 64 bits with sign.
    Int(i64),
    /// A number; may be infinite or not a number.
    Float(f64),
    /// Nothing of the above: the text itself.
    Text,
    /// `<<`
    Merge,
}

/// The meaning of a plain scalar without a tag.
#[must_use]
pub fn resolve(text: &str) -> Resolved {
    match text.as_bytes().first() {
        None => Resolved::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => {
            word(text)
        }
        Some(b'.') => special(text).unwrap_or_else(|| float(text)),
        Some(b'0'..=b'9' | b'+' | b'-') => special(text).unwrap_or_else(|| number(text)),
        Some(b'<') if text == "<<" => Resolved::Merge,
        Some(_) => Resolved::Text,
    }
}

fn word(text: &str) -> Resolved {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        _ => Resolved::Text,
    }
}

fn special(text: &str) -> Option<Resolved> {
    let value = match text {
        ".nan" | ".NaN" | ".NAN" => f64::NAN,
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => f64::INFINITY,
        "-.inf" | "-.Inf" | "-.INF" => f64::NEG_INFINITY,
        _ => return None,
    };
    Some(Resolved::Float(value))
}

fn number(text: &str) -> Resolved {
    let plain: String;
    let text = if text.contains('_') {
        plain = text.replace('_', "");
        plain.as_str()
    } else {
        text
    };
    match integer(text) {
        Some(value) => normal(value),
        None if is_float(text) => float(text),
        None => Resolved::Text,
    }
}

/// An integer in any of Go's notations, as far as it fits 64 bits with or without sign.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    // An unsigned number takes no sign in Go.
    let signed = negative || text.starts_with('+');
    let highest = if signed { i128::from(i64::MAX) } else { i128::from(u64::MAX) };
    (i128::from(i64::MIN)..=highest).contains(&value).then_some(value)
}

#[expect(clippy::cast_precision_loss, reason = "what the API server makes of such a number")]
fn normal(value: i128) -> Resolved {
    i64::try_from(value).map_or(Resolved::Float(value as f64), Resolved::Int)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_fits && exponent_fits
}

/// A decimal number as JSON carries it on: without a fraction it is an integer again.
fn float(text: &str) -> Resolved {
    if !is_float(text) {
        return Resolved::Text;
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => from_float(value),
        _ => Resolved::Text,
    }
}

/// The API server turns YAML into JSON before it looks: `1.0` and `1e3` arrive as integers.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "within the range that is checked")]
pub fn from_float(value: f64) -> Resolved {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value) {
        Resolved::Int(value as i64)
    } else {
        Resolved::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::{Resolved as R, *};

    #[test]
    fn plain_scalars_mean_what_go_yaml_takes_them_for() {
        const TABLE: &[(&str, R)] = &[
            ("", R::Null),
            ("~", R::Null),
            ("Null", R::Null),
            ("nULL", R::Text),
            ("y", R::Bool(true)),
            ("yes", R::Bool(true)),
            ("On", R::Bool(true)),
            ("n", R::Bool(false)),
            ("OFF", R::Bool(false)),
            ("oN", R::Text),
            ("true", R::Bool(true)),
            ("truely", R::Text),
            ("0", R::Int(0)),
            ("-0", R::Int(0)),
            ("0644", R::Int(420)),
            ("0o644", R::Int(420)),
            ("0x1F", R::Int(31)),
            ("-0x1f", R::Int(-31)),
            ("0b101", R::Int(5)),
            ("08", R::Int(8)),
            ("089.5", R::Float(89.5)),
            ("1_000", R::Int(1000)),
            ("+12", R::Int(12)),
            ("12:30", R::Text),
            ("1.0", R::Int(1)),
            ("1e3", R::Int(1000)),
            ("1.5", R::Float(1.5)),
            (".5", R::Float(0.5)),
            ("+.5", R::Float(0.5)),
            ("5.", R::Int(5)),
            (".", R::Text),
            ("-", R::Text),
            ("+", R::Text),
            ("0x", R::Text),
            ("1e", R::Text),
            ("1e999", R::Text),
            ("9223372036854775807", R::Int(i64::MAX)),
            ("-9223372036854775808", R::Int(i64::MIN)),
            ("9223372036854775808", R::Float(9_223_372_036_854_775_808.0)),
            ("99999999999999999999", R::Float(1e20)),
            (".inf", R::Float(f64::INFINITY)),
            ("-.INF", R::Float(f64::NEG_INFINITY)),
            ("2001-01-01", R::Text),
            ("1.2.3", R::Text),
            ("1Gi", R::Text),
            ("100m", R::Text),
            ("<<", R::Merge),
            ("<", R::Text),
            ("abc", R::Text),
        ];
        for (text, meaning) in TABLE {
            assert_eq!(resolve(text), *meaning, "{text:?}");
        }
        assert!(matches!(resolve(".nan"), R::Float(value) if value.is_nan()));
    }
}
