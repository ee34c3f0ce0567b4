//! Durations, percentages and milliseconds as people write them.

use std::time::Duration;

/// Why a text is no quantity; the words follow "is".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No duration.
    #[error("no duration; write a whole number and a unit of ms, s, m or h, such as 30s")]
    Duration,
    /// Longer than can be meant.
    #[error("longer than a day; write 24h or less")]
    TooLong,
    /// No percentage.
    #[error("no percentage between 0% and 100%; write it with its sign, such as 2% or 0.5%")]
    Percent,
    /// No milliseconds.
    #[error("no time in milliseconds; write a number above 0, such as 250")]
    Millis,
}

/// Reads `30s`, `500ms`, `5m` or `1h`; at most a day.
///
/// # Errors
/// It is no duration, or longer.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or(QuantityError::Duration)?;
    let (number, unit) = text.split_at(unit_at);
    if number.is_empty() {
        return Err(QuantityError::Duration);
    }
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(60 * 60),
        _ => return Err(QuantityError::Duration),
    };
    // Digits only: what does not fit is too long.
    let duration = number.parse().ok().and_then(|number: u32| unit.checked_mul(number));
    duration.filter(|duration| *duration <= DAY).ok_or(QuantityError::TooLong)
}

/// Reads `2%` as 0.02.
///
/// # Errors
/// It is no percentage.
pub fn percent(text: &str) -> Result<f64, QuantityError> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|number| (0.0..=100.0).contains(number))
        .map(|number| number / 100.0)
        .ok_or(QuantityError::Percent)
}

/// Reads `250` as milliseconds.
///
/// # Errors
/// It is no such number.
pub fn millis(text: &str) -> Result<f64, QuantityError> {
    let number = text.parse::<f64>().ok();
    number.filter(|number| number.is_finite() && *number > 0.0).ok_or(QuantityError::Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(millis("250"), Ok(250.0));
        for text in ["", "5", "s", "5 s", "-5s", "ms"] {
            assert_eq!(duration(text), Err(QuantityError::Duration), "{text}");
        }
        for text in ["25h", "99999999999s"] {
            assert_eq!(duration(text), Err(QuantityError::TooLong), "{text}");
        }
        for text in ["2", "%", "101%", "-1%", "NaN%", "x%"] {
            assert_eq!(percent(text), Err(QuantityError::Percent), "{text}");
        }
        for text in ["0", "-1", "inf", "NaN", "5ms"] {
            assert_eq!(millis(text), Err(QuantityError::Millis), "{text}");
        }
    }
}
