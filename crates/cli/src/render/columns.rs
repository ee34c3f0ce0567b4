//! Columns that line up in a stream: widths only grow, and a block is aligned before it is printed.

/// Widths of the columns so far.
#[derive(Debug)]
pub struct Columns<const N: usize> {
    header: Option<[&'static str; N]>,
    widths: [usize; N],
    is_number: [bool; N],
}

// === impl Columns ===

impl<const N: usize> Columns<N> {
    /// Columns of these headers; those whose header begins with `>` hold numbers and lie right.
    #[must_use]
    pub fn new(headers: [&'static str; N]) -> Self {
        let header = headers.map(|header| header.strip_prefix('>').unwrap_or(header));
        Self {
            header: Some(header),
            widths: header.map(width),
            is_number: headers.map(|header| header.starts_with('>')),
        }
    }

    /// The rows as lines, after the header if it has not been given yet.
    pub fn block(&mut self, rows: &[[String; N]]) -> String {
        for row in rows {
            for (widest, cell) in self.widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(cell));
            }
        }
        let mut text = String::new();
        if let Some(header) = self.header.take() {
            self.line(&header, &mut text);
        }
        for row in rows {
            self.line(&row.each_ref().map(String::as_str), &mut text);
        }
        text
    }

    fn line(&self, cells: &[&str; N], text: &mut String) {
        let mut line = String::new();
        let layout = cells.iter().zip(self.widths).zip(self.is_number);
        for (position, ((cell, widest), is_number)) in layout.enumerate() {
            if position > 0 {
                line.push_str("  ");
            }
            let padding = " ".repeat(widest.saturating_sub(width(cell)));
            let (before, after) =
                if is_number { (padding, String::new()) } else { (String::new(), padding) };
            line.push_str(&before);
            line.push_str(cell);
            line.push_str(&after);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_header_comes_once() {
        let mut columns = Columns::new(["NAME", ">COUNT"]);
        let row = |name: &str, count: &str| [name.to_owned(), count.to_owned()];
        assert_eq!(
            columns.block(&[row("a", "1"), row("longer", "1000")]),
            "NAME    COUNT\na           1\nlonger   1000\n"
        );
        assert_eq!(columns.block(&[row("b", "12")]), "b          12\n");
    }
}
