//! What stands in the golden descriptors was released: it may be added to, never changed. See
//! `proto/README.md`. The golden file is replaced by hand, when something is released.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

const GOLDEN: &[u8] = include_bytes!("golden/v1alpha1.bin");
const CURRENT: &[u8] = include_bytes!("../src/gen/descriptors.bin");

/// Full name of a field, enum value or method to what readers and writers rely on.
type Facts = BTreeMap<String, String>;

fn facts(set: &FileDescriptorSet) -> Facts {
    let mut facts = Facts::new();
    for file in &set.file {
        let package = file.package();
        for message in &file.message_type {
            of_message(&format!("{package}.{}", message.name()), message, &mut facts);
        }
        for one in &file.enum_type {
            of_enum(&format!("{package}.{}", one.name()), one, &mut facts);
        }
        for service in &file.service {
            for method in &service.method {
                let name = format!("{package}.{}/{}", service.name(), method.name());
                let (sends, answers) = (method.input_type(), method.output_type());
                let streams = (method.client_streaming(), method.server_streaming());
                facts.insert(name, format!("{sends} -> {answers} {streams:?}"));
            }
        }
    }
    facts
}

fn of_message(name: &str, message: &DescriptorProto, facts: &mut Facts) {
    for field in &message.field {
        let (kind, label) = (field.r#type(), field.label());
        let said = format!("{} {kind:?} {label:?} {}", field.number(), field.type_name());
        facts.insert(format!("{name}.{}", field.name()), said);
    }
    for nested in &message.nested_type {
        of_message(&format!("{name}.{}", nested.name()), nested, facts);
    }
    for nested in &message.enum_type {
        of_enum(&format!("{name}.{}", nested.name()), nested, facts);
    }
}

fn of_enum(name: &str, one: &EnumDescriptorProto, facts: &mut Facts) {
    for value in &one.value {
        facts.insert(format!("{name}.{}", value.name()), value.number().to_string());
    }
}

/// What was released and is not so any more.
fn broken(released: &FileDescriptorSet, current: &FileDescriptorSet) -> Vec<String> {
    let current = facts(current);
    let differs = |(name, said): (String, String)| match current.get(&name) {
        Some(now) if *now == said => None,
        Some(now) => Some(format!("{name} was {said}, is {now}")),
        None => Some(format!("{name} is gone")),
    };
    facts(released).into_iter().filter_map(differs).collect()
}

#[test]
fn nothing_that_was_released_is_changed() {
    let golden = FileDescriptorSet::decode(GOLDEN).unwrap();
    let current = FileDescriptorSet::decode(CURRENT).unwrap();
    assert!(facts(&golden).len() > 200, "the golden file holds the whole wire");
    assert_eq!(broken(&golden, &current), Vec::<String>::new());
}

#[test]
fn a_change_that_would_break_a_reader_is_found() {
    let golden = FileDescriptorSet::decode(GOLDEN).unwrap();
    let changes: [fn(&mut DescriptorProto); 4] = [
        |message| message.field[0].number = Some(99),
        |message| message.field[0].type_name = Some(".another".into()),
        |message| message.field[0].name = Some("renamed".into()),
        |message| drop(message.field.remove(0)),
    ];
    for change in changes {
        let mut current = golden.clone();
        change(&mut current.file[0].message_type[0]);
        assert_eq!(broken(&golden, &current).len(), 1);
    }
    let mut more = golden.clone();
    let mut field = more.file[0].message_type[0].field[0].clone();
    (field.name, field.number) = (Some("new".into()), Some(4_711));
    more.file[0].message_type[0].field.push(field);
    assert_eq!(broken(&golden, &more), Vec::<String>::new());
}
