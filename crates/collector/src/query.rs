//! The service `keelson.query.v1alpha1.Query`: checks the caller and the question, then lets a
//! reader answer at the caller's pace.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, stream};
use keelson_model::limits;
use keelson_proto::query::{self as wire, query_server};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status};

use crate::{
    access::Access,
    metrics::{ByQuery, Metrics, Query, Refusal},
    shared::Shared,
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

    fn filters(&self, filters: Option<&wire::Filters>) -> Result<Filters, Status> {
        Filters::compile(filters).map_err(|error| self.malformed(&error))
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
        self.access.reader(request.metadata()).await?;
        let wire::FlowsRequest { filters, range, last, follow } = request.into_inner();
        let (filters, last) = (self.filters(filters.as_ref())?, self.last(last)?);
        let turn = self.turn(Query::flows)?;
        let range = Range::new(range);
        let reader = FlowsReader::new(Arc::clone(&self.shared), filters, range, last, follow);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(Box::pin(answer)))
    }

    async fn connections(
        &self,
        request: Request<wire::ConnectionsRequest>,
    ) -> Result<Response<Self::ConnectionsStream>, Status> {
        self.access.reader(request.metadata()).await?;
        let wire::ConnectionsRequest { filters, range, last, follow } = request.into_inner();
        let (filters, last) = (self.filters(filters.as_ref())?, self.last(last)?);
        let turn = self.turn(Query::connections)?;
        let range = Range::new(range);
        let reader = ConnectionsReader::new(Arc::clone(&self.shared), filters, range, last, follow);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(Box::pin(answer)))
    }

    async fn evidence(
        &self,
        request: Request<wire::EvidenceRequest>,
    ) -> Result<Response<Self::EvidenceStream>, Status> {
        self.access.reader(request.metadata()).await?;
        let token = ResumeToken::decode(&request.into_inner().resume_token)
            .map_err(|error| self.malformed(&error))?;
        let turn = self.turn(Query::evidence)?;
        let reader = EvidenceReader::new(Arc::clone(&self.shared), token);
        let answer = stream::unfold((reader, turn), |(mut reader, turn)| async move {
            reader.next().await.map(|response| (Ok(response), (reader, turn)))
        });
        Ok(Response::new(Box::pin(answer)))
    }

    async fn nodes(
        &self,
        request: Request<wire::NodesRequest>,
    ) -> Result<Response<wire::NodesResponse>, Status> {
        self.access.reader(request.metadata()).await?;
        Ok(Response::new(nodes::answer(&self.shared)))
    }
}
