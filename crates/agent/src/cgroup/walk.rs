//! Reads the cgroup v2 tree: where it is mounted, which kubelet's pods are ours, what is there.
//!
//! Hybrid hosts have the v2 tree at `unified` below the v1 controllers. Several nodes may share a
//! kernel: the tree that holds our own pod is ours.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use keelson_model::{CgroupId, PodUid, UnixNanos, limits};

use super::{CgroupIndex, Part, parse_name};

/// Why the tree cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// Neither the path nor its `unified` is a cgroup v2 mount.
    #[error(
        "{root} is no cgroup v2 tree, nor is {root}/unified: mount the host's /sys/fs/cgroup there or name it with --cgroup-root"
    )]
    NotCgroup2 {
        /// The path given.
        root: PathBuf,
    },
    /// The directory of our own pod was not found.
    #[error(
        "no cgroup of our own pod {pod} below {root}: mount the whole cgroup tree of the host, and give the pod's uid by the downward API"
    )]
    NoOwnPod {
        /// The v2 mount.
        root: PathBuf,
        /// Uid looked for.
        pod: String,
    },
    /// The tree could not be read.
    #[error("cannot read cgroup directory {path}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The kubelet's tree that our own pod is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTree {
    /// Its root directory, `.../kubepods`.
    pub path: PathBuf,
    /// Its cgroup id.
    pub id: CgroupId,
    /// Its depth below the mount: the root of the mount has 0.
    pub level: u32,
}

/// Finds the cgroup v2 mount: the path itself, or `unified` below it.
///
/// # Errors
/// Neither is one.
pub fn find_mount(root: &Path) -> Result<PathBuf, WalkError> {
    [root.to_path_buf(), root.join("unified")]
        .into_iter()
        // Only a v2 directory has this file, the root of the mount included.
        .find(|path| path.join("cgroup.controllers").is_file())
        .ok_or_else(|| WalkError::NotCgroup2 { root: root.to_path_buf() })
}

/// Finds the tree of the kubelet that runs our own pod.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find_pod_tree(mount: &Path, own: &PodUid) -> Result<PodTree, WalkError> {
    let missing =
        || WalkError::NoOwnPod { root: mount.to_path_buf(), pod: own.as_str().to_owned() };
    let mut budget = limits::AGENT_CGROUPS;
    let is_own = |name: &str| parse_name(name) == Part::Pod(own.clone());
    let pod = find(mount, &is_own, 0, &mut budget)?.ok_or_else(missing)?;
    let is_root = |path: &&Path| {
        path.file_name().and_then(|name| name.to_str()).map(parse_name) == Some(Part::Root)
    };
    let root = pod.ancestors().find(is_root).ok_or_else(missing)?;
    let level = root.strip_prefix(mount).map_or(0, |below| below.components().count());
    Ok(PodTree {
        path: root.to_path_buf(),
        id: id_of(root)?,
        level: u32::try_from(level).unwrap_or(u32::MAX),
    })
}

/// Puts the whole tree into the index; what the index holds beside it is gone at `now`.
///
/// # Errors
/// Its root cannot be read; directories that vanish meanwhile are left out.
pub fn fill(index: &mut CgroupIndex, tree: &PodTree, now: UnixNanos) -> Result<(), WalkError> {
    index.add_root(tree.id);
    let mut present = HashSet::from([tree.id]);
    let mut open = vec![(tree.path.clone(), tree.id)];
    let mut is_root = true;
    while let Some((path, id)) = open.pop() {
        let children = match subdirectories(&path) {
            Ok(children) => children,
            Err(error) if is_root => return Err(error),
            Err(_) => continue,
        };
        is_root = false;
        for (child, name) in children {
            let Ok(child_id) = id_of(&child) else { continue };
            index.add(child_id, id, &name);
            present.insert(child_id);
            open.push((child, child_id));
        }
    }
    index.retain(&present, now);
    Ok(())
}

/// Deepest nesting looked at for the own pod: node root, kubepods, QoS class, pod, with room.
const SEARCH_DEPTH: usize = 8;

fn find(
    path: &Path,
    is_wanted: &impl Fn(&str) -> bool,
    depth: usize,
    budget: &mut usize,
) -> Result<Option<PathBuf>, WalkError> {
    if depth == SEARCH_DEPTH || *budget == 0 {
        return Ok(None);
    }
    let children = match subdirectories(path) {
        Ok(children) => children,
        Err(error) if depth == 0 => return Err(error),
        Err(_) => return Ok(None),
    };
    for (child, name) in children {
        *budget = budget.saturating_sub(1);
        if is_wanted(&name) {
            return Ok(Some(child));
        }
        if let Some(found) = find(&child, is_wanted, depth + 1, budget)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn subdirectories(path: &Path) -> Result<Vec<(PathBuf, String)>, WalkError> {
    let failed = |source| WalkError::Read { path: path.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((entry.path(), name));
        }
    }
    Ok(found)
}

/// The inode number of a cgroup v2 directory is its id.
fn id_of(path: &Path) -> Result<CgroupId, WalkError> {
    let metadata = fs::metadata(path)
        .map_err(|source| WalkError::Read { path: path.to_path_buf(), source })?;
    Ok(CgroupId(metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Lookup;

    const UID: &str = "0a1b2c3d-0000-4000-8000-123456789abc";
    const OTHER: &str = "ffffffff-0000-4000-8000-123456789abc";

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("unified")).unwrap();
        let mount = dir.path().join("unified");
        fs::write(mount.join("cgroup.controllers"), "").unwrap();
        fs::create_dir_all(mount.join(format!("kubepods/besteffort/pod{OTHER}"))).unwrap();
        fs::create_dir_all(mount.join(format!("node-b/kubepods/burstable/pod{UID}/x"))).unwrap();
        dir
    }

    #[test]
    fn the_tree_of_our_own_pod_is_found_among_several_nodes() {
        let dir = tree();
        let mount = find_mount(dir.path()).unwrap();
        let found = find_pod_tree(&mount, &UID.into()).unwrap();
        assert_eq!(found.path, mount.join("node-b/kubepods"));
        assert_eq!(found.level, 2);
        let mut index = CgroupIndex::default();
        fill(&mut index, &found, UnixNanos(0)).unwrap();
        assert_eq!(index.len(), 4, "root, class, pod and what is below it");
    }

    #[test]
    fn a_second_walk_finds_what_was_made_and_what_went_unheard() {
        let dir = tree();
        let mount = find_mount(dir.path()).unwrap();
        let found = find_pod_tree(&mount, &UID.into()).unwrap();
        let mut index = CgroupIndex::default();
        fill(&mut index, &found, UnixNanos(0)).unwrap();
        let pod = mount.join(format!("node-b/kubepods/burstable/pod{UID}"));
        fs::remove_dir(pod.join("x")).unwrap();
        let made = pod.join("y");
        fs::create_dir(&made).unwrap();
        let made = id_of(&made).unwrap();
        let lost = index.len();
        assert!(matches!(index.lookup(made), Lookup::Missing | Lookup::Owned(_)));
        fill(&mut index, &found, UnixNanos(1)).unwrap();
        assert!(matches!(index.lookup(made), Lookup::Owned(_)));
        index.expire(UnixNanos(1 + limits::AGENT_KEEP_REMOVED_SECONDS * 1_000_000_000));
        assert_eq!(index.len(), lost, "the one removed is forgotten");
    }

    #[test]
    fn a_tree_without_our_pod_names_the_remedy() {
        let dir = tree();
        let mount = find_mount(dir.path()).unwrap();
        let error = find_pod_tree(&mount, &"00000000-0000-0000".into()).unwrap_err();
        assert!(error.to_string().contains("downward API"), "{error}");
        assert!(
            find_mount(Path::new("/proc/self")).unwrap_err().to_string().contains("--cgroup-root")
        );
    }
}
