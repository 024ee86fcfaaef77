"""Every name inside another package that the stand-ins and taps patch, wrap or rely on, and the check that it is still there.

The packages promise nothing about most of these names, and a release may change any of them without notice. So the names and their
parameters are checked when a stand-in is first opened or a tap first put on, before a test can get a wrong answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple, cast

from onewrite.testing.errors import UnsupportedByStandIn


class Package(NamedTuple):
    """A package, the versions of it that are known to fit, and where its names are, with their parameters.

    A parameter with a default is written with a `=` behind it. Where there are no parentheses, the parameters do not matter.
    """

    name: str
    fits: str
    remedy: str
    seams: tuple[str, ...]


_COLLECTION = "mongomock.collection:Collection"
_BULK = "mongomock.collection:BulkOperationBuilder"
MONGOMOCK = Package(
    "mongomock",
    ">=4.3,<4.4",
    "or run this test on mongod()",
    (
        "mongomock.mongo_client:MongoClient.get_database(self, name=, codec_options=, read_preference=, write_concern=, read_concern=)",
        "mongomock.mongo_client:MongoClient.drop_database(self, name_or_db)",
        "mongomock.store:ServerStore.__getitem__(self, db_name)",
        "mongomock.database:Database.__init__(self, client, name, _store, read_preference=, codec_options=, read_concern=)",
        "mongomock.database:Database.__getitem__(self, coll_name)",
        "mongomock.database:Database.get_collection(self, name, codec_options=, read_preference=, write_concern=, read_concern=)",
        "mongomock.database:Database.rename_collection(self, name, new_name, dropTarget=)",
        f"{_COLLECTION}.__init__(self, database, name, _db_store, write_concern=, read_concern=, read_preference=, codec_options=)",
        f"{_COLLECTION}.with_options(self, codec_options=, read_preference=, write_concern=, read_concern=)",
        "mongomock.aggregate:process_pipeline(collection, database, pipeline, session)",
        "mongomock.aggregate:_parse_expression(expression, doc_dict, ignore_missing_keys=)",
        f"{_COLLECTION}._iter_documents(self, filter)",
        f"{_COLLECTION}._get_dataset(self, spec, sort, fields, as_class)",
        f"{_COLLECTION}._insert(self, data, session=, ordered=)",
        f"{_COLLECTION}._update(self, spec, document, upsert=, manipulate=, multi=, check_keys=, hint=, session=, collation=, let=, array_filters=, **kwargs)",
        f"{_COLLECTION}._apply_update_document(self, existing_document, spec, document, was_insert)",
        f"{_COLLECTION}._apply_update_pipeline(self, existing_document, pipeline, session)",
        f"{_COLLECTION}._find_and_modify(self, query, projection=, update=, upsert=, sort=, return_document=, session=, **kwargs)",
        f"{_COLLECTION}._copy_only_fields(self, doc, fields, container)",
        f"{_BULK}.__init__(self, collection, ordered=, bypass_document_validation=)",
        f"{_BULK}.add_update(self, selector, doc, multi=, upsert=, collation=, array_filters=, hint=)",
        f"{_BULK}.add_replace(self, selector, doc, upsert, collation=, hint=)",
        f"{_BULK}.add_delete(self, selector, just_one, collation=, hint=)",
        f"{_BULK}.execute(self, write_concern=)",
    ),
)

_BACKEND = "moto.dynamodb.models:DynamoDBBackend"
_HANDLER = "moto.dynamodb.responses:DynamoHandler"
_TYPE = "moto.dynamodb.models.dynamo_type"
_CONDITIONS = "moto.dynamodb.comparisons"
_ERRORS = "moto.dynamodb.exceptions"
_ACTIONS = (
    "call_action",
    "put_item",
    "get_item",
    "delete_item",
    "query",
    "scan",
    "batch_write_item",
    "batch_get_item",
    "update_item",
    "transact_get_items",
    "transact_write_items",
    "execute_statement",
    "execute_transaction",
    "batch_execute_statement",
)
_OPERATORS = ("OpEqual", "OpNotEqual", "OpLessThan", "OpLessThanOrEqual", "OpGreaterThan", "OpGreaterThanOrEqual")
MOTO = Package(
    "moto",
    ">=5.2.5,<5.3",
    "or run this test on dynoxide() or dynamodb_local()",
    (
        "moto:mock_aws",
        "moto.core.models:DEFAULT_ACCOUNT_ID",
        "moto.core.responses:ActionResult.__init__(self, result)",
        "moto.dynamodb.models:dynamodb_backends",
        f"{_BACKEND}.update_item(self, table_name, key, update_expression, expression_attribute_names, expression_attribute_values, attribute_updates=, expected=, condition_expression=, return_values_on_condition_check_failure=)",
        f"{_BACKEND}.get_item(self, table_name, keys, projection_expressions=)",
        f"{_BACKEND}.get_table(self, table_name)",
        f"{_BACKEND}.get_keys_value(self, table, keys)",
        "moto.dynamodb.models.table:Table.delete_item(self, hash_key, range_key)",
        f"{_TYPE}:DynamoType.__init__(self, type_as_dict)",
        f"{_TYPE}:DynamoType.__setitem__(self, key, value)",
        f"{_TYPE}:Item.size(self)",
        *(f"{_HANDLER}.{action}(self)" for action in _ACTIONS),
        *(f"{_CONDITIONS}:{operator}.__init__(self, lhs, rhs)" for operator in _OPERATORS),
        *(f"{_CONDITIONS}:{operator}.expr(self, item)" for operator in _OPERATORS),
        f"{_CONDITIONS}:FuncBetween.__init__(self, attribute, start, end)",
        f"{_CONDITIONS}:FuncBetween.expr(self, item)",
        f"{_CONDITIONS}:FuncIn.__init__(self, attribute, *possible_values)",
        f"{_CONDITIONS}:FuncIn.expr(self, item)",
        f"{_CONDITIONS}:FuncSize.__init__(self, attribute)",
        f"{_CONDITIONS}:FuncSize.expr(self, item)",
        f"{_CONDITIONS}:AttributeValue.__init__(self, value)",
        f"{_CONDITIONS}:Operand.get_type(self, item)",
        f"{_ERRORS}:InvalidConditionExpression.__init__(self, condition_expression_error)",
        f"{_ERRORS}:InvalidUpdateExpressionInvalidDocumentPath.__init__(self)",
        f"{_ERRORS}:ItemSizeToUpdateTooLarge.__init__(self)",
        f"{_ERRORS}:TransactionCanceledException.__init__(self, errors)",
    ),
)

# A client also has the attributes `_endpoint` and `_request_signer`, which its constructor sets, and the signer has `_credentials`.
# A client's `meta.events` has an `_emitter` with `_unique_id_handlers`.
BOTOCORE = Package(
    "botocore",
    ">=1.35.16",
    "or leave out the tap",
    (
        "botocore.client:BaseClient._make_api_call(self, operation_name, api_params)",
        "botocore.client:ClientMeta.endpoint_url",
        "botocore.client:ClientMeta.service_model",
        "botocore.endpoint:Endpoint._do_get_response(self, request, operation_model, context)",
        "botocore.errorfactory:BaseClientExceptions.from_code(self, error_code)",
    ),
)
BOTO3 = Package(
    "boto3",
    ">=1.35.16",
    "or leave out the tap",
    (
        "boto3.resources.base:ResourceMeta.__init__(self, service_name, identifiers=, client=, data=, resource_model=)",
        "boto3.resources.base:ResourceMeta.copy(self)",
    ),
)
AIOBOTOCORE = Package(
    "aiobotocore",
    ">=2.15.2",
    "or leave out the tap",
    (
        "aiobotocore.client:AioBaseClient._make_api_call(self, operation_name, api_params)",
        "aiobotocore.endpoint:AioEndpoint._do_get_response(self, request, operation_model, context)",
    ),
)
_OPERATIONS = ("InsertOne", "UpdateOne", "UpdateMany", "ReplaceOne", "DeleteOne", "DeleteMany")
PYMONGO = Package(
    "pymongo",
    ">=4.13",
    "or leave out the tap",
    (
        "pymongo.cursor:Cursor.__init__",
        "pymongo.mongo_client:MongoClient.options",
        "pymongo.mongo_client:MongoClient.topology_description",
        "pymongo.client_options:ClientOptions.retry_writes",
        "pymongo.topology_description:TopologyDescription.server_descriptions(self)",
        "pymongo.server_description:ServerDescription.retryable_writes_supported",
        "pymongo.asynchronous.client_session:AsyncClientSession",
        "pymongo.client_session:ClientSession",
        "pymongo.client_session:SessionOptions.__init__(self, causal_consistency=, default_transaction_options=, snapshot=)",
        "pymongo.errors:PyMongoError._add_error_label(self, label)",
        "pymongo.errors:PyMongoError._remove_error_label(self, label)",
        *(f"pymongo.operations:{name}._add_to_bulk(self, bulkobj)" for name in _OPERATIONS),
        "pymongo.operations:InsertOne._doc",
        *(
            f"pymongo.operations:{name}.{attribute}"
            for name in _OPERATIONS
            if name != "InsertOne"
            for attribute in ("_filter", "_collation")
        ),
    ),
)


@cache
def check(package: Package) -> None:
    """Raise `UnsupportedByStandIn` where a name is missing, or takes other parameters. Each package is looked at once."""
    import_module(package.name)  # a package that is not installed is no matter of seams
    for seam in package.seams:
        path, _, parameters = seam.removesuffix(")").partition("(")
        difference = _difference(path, parameters if seam.endswith(")") else None)
        if difference is not None:
            raise UnsupportedByStandIn(
                f"{package.name} {version(package.name)} is not as onewrite.testing needs it: {path.replace(':', '.')} {difference}. "
                f"{package.name}{package.fits} is known to fit: install that, {package.remedy}."
            )


def _difference(seam: str, parameters: str | None) -> str | None:
    module, _, path = seam.partition(":")
    try:
        value: Any = import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return "is missing"
    if parameters is None:
        return None
    if not callable(value):
        return f"is no function of ({parameters})"
    present = parameters_of(cast("Callable[..., Any]", value))
    return None if present == parameters else f"takes ({present}), and should take ({parameters})"


def parameters_of(function: Callable[..., Any]) -> str:
    """The parameters of a function as `Package.seams` writes them."""
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(function).parameters.values()
    return ", ".join([stars.get(p.kind, "") + p.name + ("" if p.default is p.empty else "=") for p in parameters])
