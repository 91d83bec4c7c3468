"""Rerankers: order a question's pool of passages anew."""

from corpora.registry import Registry
from rerankers.base import Reranker

RERANKERS: Registry[Reranker] = Registry(
    "rerankers",
    {
        "cross_encoder": "rerankers.cross_encoder:CrossEncoder",
        "dpp": "rerankers.dpp:DPP",
        "facility_location": "rerankers.facility_location:FacilityLocation",
        "ia_select": "rerankers.ia_select:IASelect",
        "listwise": "rerankers.listwise:Listwise",
        "mmr": "rerankers.mmr:MMR",
        "oracle": "rerankers.oracle:Oracle",
        "pm2": "rerankers.pm2:PM2",
        "round_robin": "rerankers.round_robin:RoundRobin",
        "vrsd": "rerankers.vrsd:VRSD",
        "xquad": "rerankers.xquad:XQuAD",
    },
    extras={"cross_encoder": "dense", "listwise": "llm"},
)

__all__ = ["RERANKERS", "Reranker"]
