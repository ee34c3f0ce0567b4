//! Reading an Application, and what is said where there is none of that name.

use keelson_api::application::Application;
use kube::{Api, api::ListParams};

use crate::{
    cluster::Cluster,
    error::{CliError, status_code},
    request::Scope,
};

/// Names offered where one was not found.
const NEAR: usize = 5;

/// Reads an Application of the chosen namespace.
///
/// # Errors
/// It does not exist, its kind does not, or it may not be read.
pub async fn read(cluster: &Cluster, name: &str) -> Result<Application, CliError> {
    let namespace = cluster.namespace.as_str();
    let call = cluster.call("read the Application", ("get", "applications.keelson.dev"), namespace);
    let api: Api<Application> = Api::namespaced(cluster.client.clone(), namespace);
    match api.get(name).await {
        Ok(application) => Ok(application),
        Err(error) if status_code(&error) == Some(404) => Err(missing(cluster, name).await),
        Err(kube::Error::SerdeError(error)) => {
            Err(CliError::Unreadable { name: name.to_owned(), message: error.to_string() })
        }
        Err(error) => Err(CliError::api(call, error)),
    }
}

/// The rows of its pods.
#[must_use]
pub fn scope(application: &Application) -> Scope {
    let reference = &application.spec.workload.reference;
    Scope::Workload {
        namespace: application.metadata.namespace.clone().unwrap_or_default(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
    }
}

/// Says what is missing: the kind, or one of its objects.
async fn missing(cluster: &Cluster, name: &str) -> CliError {
    let here = cluster.namespace.clone();
    let all: Api<Application> = Api::all(cluster.client.clone());
    let everywhere = match all.list(&ListParams::default()).await {
        Ok(list) => Ok(list),
        // Who may not list all may list here.
        Err(_) => {
            let local: Api<Application> = Api::namespaced(cluster.client.clone(), &here);
            local.list(&ListParams::default()).await
        }
    };
    let names = match everywhere {
        Ok(list) => list.items.into_iter().map(|object| {
            let metadata = object.metadata;
            (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default())
        }),
        Err(error) if status_code(&error) == Some(404) => return CliError::NoApplications,
        Err(_) => {
            return CliError::NotFound { name: name.to_owned(), namespace: here, near: vec![] };
        }
    };
    let near = near(name, &here, names);
    CliError::NotFound { name: name.to_owned(), namespace: here, near }
}

/// Names that come near `name`, the nearest first; those of other namespaces with theirs.
fn near(name: &str, here: &str, names: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let mut ranked: Vec<(usize, bool, String)> = names
        .filter_map(|(namespace, other)| {
            let steps = distance(name, &other);
            let allowed = (name.chars().count() / 3).max(2);
            let is_near = steps <= allowed || other.contains(name) || name.contains(&other);
            let is_elsewhere = namespace != here;
            let shown = if is_elsewhere { format!("{namespace}/{other}") } else { other };
            is_near.then_some((steps, is_elsewhere, shown))
        })
        .collect();
    ranked.sort();
    ranked.into_iter().take(NEAR).map(|(_, _, shown)| shown).collect()
}

/// Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut next = vec![line + 1];
        for (column, other) in right.iter().enumerate() {
            let above = row.get(column + 1).copied().unwrap_or_default() + 1;
            let before = next.get(column).copied().unwrap_or_default() + 1;
            let swapped =
                row.get(column).copied().unwrap_or_default() + usize::from(letter != *other);
            next.push(above.min(before).min(swapped));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let names = [("shop", "web"), ("shop", "worker"), ("bank", "wep"), ("shop", "web-canary")];
        let names = names.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        assert_eq!(near("wep", "shop", names.into_iter()), ["bank/wep", "web"]);
    }

    #[test]
    fn the_distance_counts_single_steps() {
        for (left, right, steps) in [("", "abc", 3), ("web", "wep", 1), ("kitten", "sitting", 3)] {
            assert_eq!(distance(left, right), steps);
        }
    }
}
