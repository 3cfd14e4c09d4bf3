//! The archives that cloud-init reads: parts of several types in one text.

use super::UserDataError;

const BOUNDARY: &str = "//";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub content_type: String,
    pub body: String,
}

impl Part {
    pub(super) fn new(content_type: &str, body: &str) -> Self {
        Self { content_type: content_type.into(), body: body.into() }
    }
}

/// Whether `text` says that it is an archive.
pub(super) fn is_archive(text: &str) -> bool {
    let start = text.trim_start();
    ["MIME-Version:", "Content-Type:"]
        .iter()
        .any(|header| start.get(..header.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(header)))
}

/// The parts of an archive, in order.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, UserDataError> {
    let text = text.replace('\r', "");
    let text = text.trim_start();
    let (head, body) = text
        .split_once("\n\n")
        .ok_or_else(|| UserDataError::Mime("no empty line ends its headers".into()))?;
    let content_type =
        content_type(head)?.ok_or_else(|| UserDataError::Mime("it has no Content-Type".into()))?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Err(UserDataError::Mime(format!("its Content-Type is `{content_type}`")));
    }
    let boundary = parameter(&content_type, "boundary")
        .ok_or_else(|| UserDataError::Mime("its Content-Type names no boundary".into()))?;
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts = Vec::new();
    let mut lines: Option<Vec<&str>> = None;
    for line in body.lines() {
        let is_close = line.trim_end() == close;
        if is_close || line.trim_end() == open {
            if let Some(lines) = lines.take() {
                parts.push(part(&lines.join("\n"))?);
            }
            if is_close {
                return Ok(parts);
            }
            lines = Some(Vec::new());
        } else if let Some(lines) = &mut lines {
            lines.push(line);
        }
    }
    Err(UserDataError::Mime(format!("no line `{close}` ends it")))
}

fn part(text: &str) -> Result<Part, UserDataError> {
    let (head, body) = match text.strip_prefix('\n') {
        Some(body) => ("", body),
        None => text.split_once("\n\n").unwrap_or((text, "")),
    };
    let content_type = content_type(head)?.unwrap_or_else(|| "text/plain".into());
    Ok(Part { content_type, body: body.to_owned() })
}

/// Headers may go on in lines that begin with white space.
fn content_type(head: &str) -> Result<Option<String>, UserDataError> {
    let mut found: Option<String> = None;
    let mut is_inside = false;
    for line in head.lines() {
        if line.starts_with([' ', '\t']) {
            if let (true, Some(value)) = (is_inside, &mut found) {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        let (name, value) = line
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && !name.contains(' '))
            .ok_or_else(|| UserDataError::Mime(format!("`{line}` is not a header")))?;
        is_inside = name.eq_ignore_ascii_case("Content-Type");
        if is_inside {
            found = Some(value.trim().to_owned());
        }
    }
    Ok(found)
}

fn parameter(content_type: &str, name: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

pub(super) fn render(parts: &[Part]) -> String {
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    for part in parts {
        text.push_str(&format!("--{BOUNDARY}\nContent-Type: {}\n\n{}\n", part.content_type, part.body));
    }
    text.push_str(&format!("--{BOUNDARY}--\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_263_a_malformed_header_is_an_error() {
        for text in [
            "MIME-Version: 1.0\nwhat is this\n\n--//\n--//--\n",
            "Content-Type: text/plain\n\nhello\n",
            "Content-Type: multipart/mixed\n\nhello\n",
            "Content-Type: multipart/mixed; boundary=\"b\"\n\n--b\n\nnever closed\n",
            "MIME-Version: 1.0",
        ] {
            assert!(matches!(parse(text), Err(UserDataError::Mime(_))), "{text}");
        }
    }

    #[test]
    fn aws_264_parts_and_their_types_survive() {
        let text = "Content-Type: multipart/mixed;\n boundary=\"XX\"\nMIME-Version: 1.0\n\npreamble\n--XX\r\nContent-Type: \
                    text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\n\necho 1\n--XX\nContent-Type: \
                    application/node.eks.aws\n\na: 1\n--XX--\nepilogue\n";
        let parts = parse(text).expect("an archive");
        assert_eq!(
            parts,
            [
                Part::new("text/x-shellscript; charset=\"us-ascii\"", "#!/bin/sh\n\necho 1"),
                Part::new("application/node.eks.aws", "a: 1"),
            ]
        );
        let rendered = render(&parts);
        assert_eq!(parse(&rendered).expect("our own archive"), parts);
        assert_eq!(render(&parse(&rendered).expect("our own archive")), rendered);
    }

    #[test]
    fn an_archive_is_known_by_its_first_line() {
        assert!(is_archive("\n MIME-Version: 1.0\n") && is_archive("content-type: multipart/mixed"));
        assert!(!is_archive("#!/bin/sh") && !is_archive("") && !is_archive("é"));
    }
}
