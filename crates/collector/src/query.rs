//! The service `keelson.query.v1alpha1.Query`: checks the caller and the question, then lets a
//! reader answer at the caller's pace.

use std::{collections::BTreeSet, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, future::BoxFuture, stream};
use keelson_model::limits;
use keelson_proto::query::{self as wire, query_server};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status};

use crate::{
    access::{Access, Credentials},
    metrics::{ByQuery, Metrics, Query, Refusal},
    shared::Shared,
    sight::Sight,
};

pub mod answer;
pub mod connections;
pub mod evidence;
pub mod filter;
pub mod flows;
pub mod nodes;
pub mod rows;

use answer::Range;
use connections::ConnectionsReader;
use evidence::{EvidenceReader, ResumeToken};
use filter::Filters;
use flows::FlowsReader;

type Answer<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The query service.
#[derive(Clone)]
pub struct QueryService {
    shared: Arc<Shared>,
    access: Access,
}

/// A query being answered: counted, and one of a bounded number.
struct Turn {
    metrics: Metrics,
    query: Query,
    _permit: OwnedSemaphorePermit,
}

// === impl QueryService ===

impl QueryService {
    /// A service over the shared state.
    #[must_use]
    pub fn new(shared: Arc<Shared>, access: Access) -> Self {
        Self { shared, access }
    }

    fn turn(&self, query: Query) -> Result<Turn, Status> {
        let metrics = self.shared.metrics.clone();
        let Ok(permit) = Arc::clone(&self.shared.queries).try_acquire_owned() else {
            metrics.refuse(Refusal::too_many_queries, 1);
            let limit = limits::COLLECTOR_QUERIES;
            return Err(Status::resource_exhausted(format!("{limit} queries are being answered")));
        };
        metrics.subscribers.get_or_create(&ByQuery { query }).inc();
        Ok(Turn { metrics, query, _permit: permit })
    }

    /// The filters with what the caller may see, and the end of its right to.
    async fn filters(
        &self,
        credentials: Credentials,
        filters: Option<&wire::Filters>,
    ) -> Result<(Filters, BoxFuture<'static, Status>), Status> {
        let filters = Filters::compile(filters);
        let named = filters.as_ref().map(Filters::namespaces).unwrap_or_default();
        // Who may not ask is not told what is wrong with the question.
        let sight = self.access.sight(&credentials, &named).await?;
        let filters = filters.map_err(|error| self.malformed(&error))?;
        let lost = self.lost(credentials, named, sight.clone());
        Ok((filters.seen_by(sight), lost))
    }

    fn lost(
        &self,
        credentials: Credentials,
        named: BTreeSet<String>,
        granted: Sight,
    ) -> BoxFuture<'static, Status> {
        let asked = Arc::new((credentials, named));
        self.access.lost(granted, move |access| {
            let asked = Arc::clone(&asked);
            async move { access.sight(&asked.0, &asked.1).await }
        })
    }

    fn last(&self, last: u32) -> Result<usize, Status> {
        let count = usize::try_from(last).unwrap_or(usize::MAX);
        if count > limits::QUERY_LAST_ROWS {
            let limit = limits::QUERY_LAST_ROWS;
            return Err(self.malformed(&format!("last takes at most {limit}, not {last}")));
        }
        Ok(count)
    }

    fn malformed(&self, error: &dyn std::fmt::Display) -> Status {
        self.shared.metrics.refuse(Refusal::malformed, 1);
        Status::invalid_argument(error.to_string())
    }
}

/// The answer, ended by the status that `lost` gives.
fn until<T: Send + 'static>(
    answer: impl Stream<Item = Result<T, Status>> + Send + 'static,
    lost: BoxFuture<'static, Status>,
) -> Answer<T> {
    let state = Some((Box::pin(answer), lost));
    Box::pin(stream::unfold(state, |state| async move {
        let (mut answer, mut lost) = state?;
        tokio::select! {
            biased;
            status = &mut lost => Some((Err(status), None)),
            item = answer.next() => item.map(|item| (item, Some((answer, lost)))),
        }
    }))
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.metrics.subscribers.get_or_create(&ByQuery { query: self.query }).dec();
    }
}

#[tonic::async_trait]
impl query_server::Query for QueryService {
    type FlowsStream = Answer<wire::FlowsResponse>;
    type ConnectionsStream = Answer<wire::ConnectionsResponse>;
    type EvidenceStream = Answer<wire::EvidenceResponse>;

    async fn flows(
        &self,
        request: Request<wire::FlowsRequest>,
    ) -> Result<Response<Self::FlowsStream>, Status> {
        let credentials = Credentials::of(&request);
        let wire::FlowsRequest { filters, range, last, follow } = request.into_inner();
        let (filters, lost) = self.filters(credentials, filters.as_ref()).await?;
        let last = self.last(last)?;
        let turn = self.turn(Query::flows)?;
        let range = Range::new(range);
        let reader = FlowsReader::new(Arc::clone(&self.shared), filters, range, last, follow);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(until(answer, lost)))
    }

    async fn connections(
        &self,
        request: Request<wire::ConnectionsRequest>,
    ) -> Result<Response<Self::ConnectionsStream>, Status> {
        let credentials = Credentials::of(&request);
        let wire::ConnectionsRequest { filters, range, last, follow } = request.into_inner();
        let (filters, lost) = self.filters(credentials, filters.as_ref()).await?;
        let last = self.last(last)?;
        let turn = self.turn(Query::connections)?;
        let range = Range::new(range);
        let reader = ConnectionsReader::new(Arc::clone(&self.shared), filters, range, last, follow);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(until(answer, lost)))
    }

    async fn evidence(
        &self,
        request: Request<wire::EvidenceRequest>,
    ) -> Result<Response<Self::EvidenceStream>, Status> {
        let credentials = Credentials::of(&request);
        self.access.everything(&credentials).await?;
        let lost = self.lost(credentials, BTreeSet::new(), Sight::All);
        let token = ResumeToken::decode(&request.into_inner().resume_token)
            .map_err(|error| self.malformed(&error))?;
        let turn = self.turn(Query::evidence)?;
        let reader = EvidenceReader::new(Arc::clone(&self.shared), token);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(until(answer, lost)))
    }

    async fn nodes(
        &self,
        request: Request<wire::NodesRequest>,
    ) -> Result<Response<wire::NodesResponse>, Status> {
        self.access.everything(&Credentials::of(&request)).await?;
        Ok(Response::new(nodes::answer(&self.shared)))
    }
}
