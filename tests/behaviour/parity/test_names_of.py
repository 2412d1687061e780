"""The extractor of names, on declarations of every kind that the packages have."""

from __future__ import annotations

import pytest

from .names_of import lines_of, names_of

DECLARATIONS = """
import Base from "base";
declare class Hidden extends Base {
    private constructor();
    static make(): Hidden;
}
export const hidden: Hidden;
export abstract class Client extends Hidden {
    params: Params;
    readonly status = 400;
    protected _options: Options;
    private secret(): void;
    constructor(options: Options);
    abstract connect(handler: (inner: { not: 1 }) => { a: 2 }): Promise<void>;
    get state(): State;
    set state(state: State);
    /** a comment */
    static of<T extends { neither: 3 }>(value: T): Client;
}
export interface Options extends Other {
    callbacks?: Callbacks;
    find(key: string): string;
}
export type Params = { url?: string | null; } & Partial<{ headers: Headers; arguments: { name: string; }[]; }> & {
    [key: string]: unknown;
};
export type Callbacks = Partial<{
    onReady: (data: { nor: 4 }) => void;
}>;
export type State = "on" | /** why */ "not-on" | "#";
export type Kind = { kind: "a"; more: 1 } | { kind: "b" };
export type Json = string | null | Json[];
export enum Event { Ready = "ready", Gone = 2, Bare }
export function run(what: "neither" | "nor"): void;
export default Client
"""


def test_names() -> None:
    """Declarations are listed with their public members, values and parts, but without names that belong to calls."""
    assert lines_of(DECLARATIONS) == [
        "Hidden",
        "Hidden.make()",
        "hidden",
        "Client",
        "Client.params",
        "Client.status",
        "Client.connect()",
        "Client.state",
        "Client.of()",
        "Options",
        "Options.callbacks",
        "Options.find()",
        "Params",
        "Params.url",
        "Params.headers",
        "Params.arguments",
        "Params.arguments.name",
        "Callbacks",
        "Callbacks.onReady",
        "State",
        "State.'on'",
        "State.'not-on'",
        "State.'#'",
        "Kind",
        "Kind.kind",
        "Kind.more",
        "Json",
        "Event",
        "Event.Ready = ready",
        "Event.Gone = 2",
        "Event.Bare",
        "run()",
    ]


def test_other_text() -> None:
    """Unreadable text is an error, not an empty list."""
    with pytest.raises(ValueError, match="not TypeScript"):
        names_of("def names_of(text): ...")
