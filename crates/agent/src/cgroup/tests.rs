use super::*;

const UID: &str = "0a1b2c3d-0000-4000-8000-123456789abc";
const CONTAINER: &str = "3f1e9d8c7b6a5f4e3d2c1b0a3f1e9d8c7b6a5f4e3d2c1b0a3f1e9d8c7b6a5f4e";

#[test]
fn both_drivers_names_give_the_same_pod() {
    let cases = [
        format!("pod{UID}"),
        format!("kubepods-pod{}.slice", UID.replace('-', "_")),
        format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_")),
        format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")),
    ];
    for name in cases {
        assert_eq!(parse_name(&name), Part::Pod(UID.into()), "{name}");
    }
}

#[test]
fn other_names_are_no_pods() {
    for name in
        ["burstable", "kubepods-burstable.slice", "podman", "pod../..", "pod", "system.slice"]
    {
        assert_eq!(parse_name(name), Part::Other, "{name}");
    }
    for name in ["kubepods", "kubepods.slice"] {
        assert_eq!(parse_name(name), Part::Root, "{name}");
    }
}

fn index() -> CgroupIndex {
    let mut index = CgroupIndex::default();
    index.add_root(CgroupId(1));
    index.add(CgroupId(2), CgroupId(1), "burstable");
    index.add(CgroupId(3), CgroupId(2), &format!("pod{UID}"));
    index.add(CgroupId(4), CgroupId(3), CONTAINER);
    index.add(CgroupId(5), CgroupId(4), "init.scope");
    index
}

#[test]
fn a_container_and_what_it_made_below_itself_are_the_pods() {
    let index = index();
    assert_eq!(index.lookup(CgroupId(2)), Lookup::NoPod);
    for (id, container) in [(3, None), (4, Some(CONTAINER)), (5, Some(CONTAINER))] {
        let Lookup::Owned(owner) = index.lookup(CgroupId(id)) else { panic!("{id} has no owner") };
        assert_eq!((owner.pod.as_str(), owner.container.as_deref()), (UID, container), "{id}");
    }
}

#[test]
fn the_systemd_drivers_scope_gives_the_container_too() {
    let mut index = index();
    index.add(CgroupId(6), CgroupId(3), &format!("cri-containerd-{CONTAINER}.scope"));
    let Lookup::Owned(owner) = index.lookup(CgroupId(6)) else { panic!("no owner") };
    assert_eq!(owner.container.as_deref(), Some(CONTAINER));
}

#[test]
fn a_directory_of_another_tree_is_left_out() {
    let mut index = index();
    index.add(CgroupId(9), CgroupId(8), &format!("pod{UID}"));
    assert_eq!(index.lookup(CgroupId(9)), Lookup::Missing);
}

#[test]
fn a_removed_cgroup_is_known_for_its_time_and_no_longer() {
    let mut index = index();
    let at = UnixNanos(1_000 * NANOS_PER_SECOND);
    index.remove(CgroupId(4), at);
    let keep = limits::AGENT_KEEP_REMOVED_SECONDS * NANOS_PER_SECOND;
    index.expire(UnixNanos(at.0 + keep - 1));
    assert!(matches!(index.lookup(CgroupId(4)), Lookup::Owned(_)));
    index.expire(UnixNanos(at.0 + keep));
    assert_eq!(index.lookup(CgroupId(4)), Lookup::Missing);
}

#[test]
fn a_full_index_refuses_and_counts() {
    let mut index = CgroupIndex::with_capacity(2);
    index.add_root(CgroupId(1));
    index.add(CgroupId(2), CgroupId(1), "burstable");
    index.add(CgroupId(3), CgroupId(1), "besteffort");
    assert_eq!((index.len(), index.refused()), (2, 1));
}
