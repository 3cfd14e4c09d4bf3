//! Torn, hostile, refused: files that are not what they should be.

use std::path::Path;

use jiff::Timestamp;
use provisor::io::recording::{Segment, SegmentWriter, segments};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SHOP, packed, provisor, talk, text};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).expect("a moment")
}

/// All lines of a file that can be read, and whether something is missing.
fn lines_of(path: &Path) -> (Vec<String>, bool) {
    let Ok(segment) = Segment::open(path) else { return (Vec::new(), true) };
    let (mut lines, mut is_torn) = (Vec::new(), false);
    for block in &segment.blocks {
        match segment.text(block) {
            Ok(text) => {
                lines.extend(text.lines.lines().map(str::to_owned));
                is_torn |= text.torn.is_some();
            }
            Err(_) => is_torn = true,
        }
    }
    (lines, is_torn)
}

#[test]
fn a_file_cut_at_any_byte_has_every_line_that_was_whole() {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("whole.jsonl.zst");
    let mut writer = SegmentWriter::create(&path).expect("made");
    let all: Vec<String> =
        (0..60).map(|number| format!("{{\"line\":{number},\"x\":\"{}\"}}", number * 7919)).collect();
    let mut flushed = Vec::new();
    for (number, line) in all.iter().enumerate() {
        writer.append(at(number as i64), &format!("{line}\n"), &[number as u32]).expect("written");
        if number % 20 == 19 {
            writer.flush().expect("flushed");
            flushed.push((writer.size() as usize, number + 1));
        }
    }
    writer.finish().expect("closed");
    let bytes = std::fs::read(&path).expect("there");
    let cut = folder.path().join("cut.jsonl.zst");
    let mut seen = Vec::new();
    for length in 0..=bytes.len() {
        std::fs::write(&cut, &bytes[..length]).expect("written");
        let (lines, is_torn) = lines_of(&cut);
        assert_eq!(lines, all[..lines.len()], "{length} bytes: a beginning of what was written");
        assert!(
            is_torn || lines.len() == all.len() || length == 0,
            "{length} bytes: what is missing is told"
        );
        // What was handed to the operating system is not lost.
        let safe = flushed.iter().rev().find(|(size, _)| *size <= length).map_or(0, |(_, count)| *count);
        assert!(lines.len() >= safe, "{length} bytes: {} lines, and {safe} were flushed", lines.len());
        seen.push(lines.len());
    }
    assert_eq!(seen.last(), Some(&60));
    assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "more bytes are never fewer lines");
}

#[test]
fn a_flipped_byte_is_noticed() {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("whole.jsonl.zst");
    let mut writer = SegmentWriter::create(&path).expect("made");
    let line = format!("{{\"line\":\"{}\"}}\n", "abcdefgh".repeat(64));
    writer.append(at(0), &line, &[1]).expect("written");
    writer.finish().expect("closed");
    let bytes = std::fs::read(&path).expect("there");
    // The frame without its index, which follows it.
    let frame = bytes.len() - (8 + 4 + 16 + 4);
    for place in 4..frame {
        let mut wrong = bytes.clone();
        wrong[place] ^= 0x40;
        std::fs::write(&path, &wrong).expect("written");
        let (lines, is_torn) = lines_of(&path);
        assert!(is_torn || lines == [line.trim_end()], "byte {place}: {lines:?}");
    }
}

#[test]
fn a_torn_recording_is_replayed_as_far_as_it_goes() {
    let folder = TempDir::new().expect("a directory");
    let bytes = std::fs::read(&SHOP.path).expect("recorded");
    let path = folder.path().join("torn.jsonl.zst");
    for missing in [1, 40, 500, 20_000] {
        std::fs::write(&path, &bytes[..bytes.len() - missing]).expect("written");
        let output = provisor(&["replay", text(&path)]);
        assert_eq!(output.status.code(), Some(0), "{missing}: {}", talk(&output));
    }
    assert!(talk(&provisor(&["replay", text(&path)])).contains("is torn"));
    let output = provisor(&["why", "node", "node-5e1f0003", "--recording", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
}

#[test]
fn only_frames_that_speak_of_a_key_are_opened() {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("long.jsonl.zst");
    let mut writer = SegmentWriter::create(&path).expect("made");
    let filling = "x".repeat(2_000);
    for number in 0..2_000 {
        writer
            .append(at(number), &format!("\"{filling}\"\n"), &[number as u32 % 50, 1_000 + number as u32])
            .expect("written");
    }
    writer.finish().expect("closed");
    let segment = Segment::open(&path).expect("there");
    let speaking = |key: u32| segment.blocks.iter().filter(|block| block.speaks_of(&[key])).count();
    assert!(segment.blocks.len() >= 3, "{}", segment.blocks.len());
    assert_eq!((speaking(7), speaking(1_700), speaking(9_999)), (segment.blocks.len(), 1, 0));
    let periods: Vec<_> = segment.blocks.iter().filter_map(|block| block.period()).collect();
    assert_eq!(periods.first().map(|(first, _)| *first), Some(at(0).as_millisecond()));
    assert_eq!(periods.last().map(|(_, last)| *last), Some(at(1_999).as_millisecond()));
}

/// Replays these lines: the exit code and what is said.
fn refused(lines: &[String]) -> (Option<i32>, String) {
    let folder = TempDir::new().expect("a directory");
    let output = provisor(&["replay", text(&packed(folder.path(), lines))]);
    (output.status.code(), talk(&output))
}

#[test]
fn a_newer_form_is_refused_with_who_wrote_it() {
    let mut header: Value = serde_json::from_str(&SHOP.lines[0]).expect("JSON");
    header["header"]["format"] = json!(2);
    header["header"]["provisor"] = json!("9.1.0");
    header["header"]["more"] = json!("that this program does not know");
    let (code, said) = refused(&[header.to_string()]);
    assert_eq!(code, Some(2));
    assert!(said.contains("Provisor 9.1.0") && said.contains("form 2") && said.contains("newer"), "{said}");
}

#[test]
fn hostile_lines_are_refused_with_their_number() {
    let after = |line: &str| vec![SHOP.lines[0].clone(), line.to_owned()];
    let is_pod = |line: &&String| line.starts_with("{\"pod\"");
    let pod = SHOP.lines.iter().find(is_pod).expect("a pod").clone();
    let is_pool = |line: &&String| line.contains("\"Pool\":{");
    let pool = SHOP.lines.iter().find(is_pool).expect("a pool").clone();
    let late = pool.replacen("\"at\":\"2026", "\"at\":\"9999", 1);
    let mut long: Value = serde_json::from_str(&pool).expect("JSON");
    long["seen"]["what"]["Pool"]["template"]["expire_after"] =
        json!({ "text": "x", "duration": "PT9000000000000H" });
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (lines, says) in [
        (vec!["{}".to_owned()], "no recording"),
        (vec!["Robots".to_owned()], "no recording"),
        (after("{\"seen\":{}}"), "line 2"),
        (after(&deep), "line 2"),
        (after(&pod), "pod shape 0"),
        (after(&late), "no cluster has seen"),
        (after(&long.to_string()), "longer than three hundred years"),
        (after("{\"shape\":{\"id\":7}}"), "line 2"),
        (
            after(
                "{\"catalog\":{\"at\":\"2026-03-02T08:00:00Z\",\"change\":{\"region\":\"x\",\"prices\":\"File\",\"notes\":[],\"settings\":{\"vm_memory_overhead\":0,\"reserved_enis\":0},\"is_whole\":false,\"types\":[]}}}",
            ),
            "catalogue does not fit",
        ),
    ] {
        let (code, said) = refused(&lines);
        assert!(code == Some(2) && said.contains(says), "{says}: {code:?} {said}");
    }
}

#[test]
fn files_that_are_no_recording_are_refused() {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "what we did on Tuesday\n").expect("written");
    for (words, says) in [
        (vec!["replay", text(&path)], "is no recording"),
        (vec!["replay", text(folder.path())], "has no recording"),
        (vec!["replay", "/nowhere/at/all"], "cannot be read"),
        (vec!["why", "node", "a", "--recording", text(&path)], "is no recording"),
        (vec!["why", "node", "a", "--recording", text(folder.path())], "has no recording"),
    ] {
        let output = provisor(&words);
        let said = talk(&output);
        assert!(output.status.code() == Some(2) && said.contains(says), "{words:?}: {said}");
    }
}

/// A frame that unpacks to far more than a frame may have costs a bounded amount of memory and ends in a notice.
#[test]
fn a_bomb_is_not_unpacked() {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("bomb.jsonl.zst");
    let mut text_of = SHOP.lines[0].clone();
    text_of.push('\n');
    let mut packer = zstd::Encoder::new(Vec::new(), 3).expect("a packer");
    std::io::Write::write_all(&mut packer, text_of.as_bytes()).expect("packed");
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..200 {
        std::io::Write::write_all(&mut packer, &spaces).expect("packed");
    }
    std::fs::write(&path, packer.finish().expect("packed")).expect("written");
    let segment = Segment::open(&path).expect("there");
    let unpacked = segment.text(&segment.blocks[0]).expect("its header is there");
    assert!(unpacked.torn.is_some_and(|why| why.contains("more than")) && unpacked.lines.len() < 1 << 20);
    assert_eq!(segments(&path).expect("one file").len(), 1);
}
