"""Customers as PynamoDB and mongoengine know them. The handlers that use these models make no client themselves."""

from __future__ import annotations

import mongoengine
from pynamodb.attributes import NumberAttribute, UnicodeAttribute, UnicodeSetAttribute, VersionAttribute
from pynamodb.models import Model


class UnversionedCustomer(Model):
    class Meta:
        table_name = "customers"
        region = "eu-west-1"

    id = UnicodeAttribute(hash_key=True)
    balance = NumberAttribute(default=0)
    seen = UnicodeSetAttribute(null=True)


class VersionedCustomer(UnversionedCustomer):
    version = VersionAttribute()


class Customer(mongoengine.Document):  # type: ignore[misc]  # mongoengine says nothing of its types
    id = mongoengine.StringField(primary_key=True)
    balance = mongoengine.IntField()
    seen = mongoengine.ListField(mongoengine.StringField())
    meta = {"collection": "customers"}  # noqa: RUF012  # as mongoengine asks for it
