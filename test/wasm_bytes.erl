%% Modules made of raw bytes, for those that are too large, or too wrong, to be written as text.
-module(wasm_bytes).

-export([module/1, section/2, vec/1, leb/1, times/2]).
-export([one/1, one/2, functions/1, exports/1, imports/1, types/1, globals/1, tables/1, segments/1]).
-export([elements/1, signature/2]).

-define(I32, 16#7F).
-define(FUNC, 16#60).
-define(END, 16#0B).

module(Sections) -> iolist_to_binary([<<0, "asm", 1:32/little>> | Sections]).

section(Id, Body) -> [Id, leb(iolist_size(Body)), Body].

vec(List) -> [leb(length(List)) | List].

leb(N) when N < 128 -> <<N>>;
leb(N) -> <<1:1, N:7, (leb(N bsr 7))/binary>>.

times(N, Bytes) -> binary:copy(iolist_to_binary(Bytes), N).

body(Locals, Code) ->
    Body = [vec(Locals), Code, ?END],
    [leb(iolist_size(Body)), Body].

type(Params, Results) -> section(1, vec([[?FUNC, vec(Params), vec(Results)]])).

%% One function with one i32 parameter, of this code.
one(Code) -> one([], Code).

one(Locals, Code) ->
    module([type([?I32], []), section(3, vec([leb(0)])), section(10, vec([body(Locals, Code)]))]).

%% One function that takes and gives so many i32.
signature(Params, Results) ->
    I32s = fun(N) -> lists:duplicate(N, ?I32) end,
    module([type(I32s(Params), I32s(Results)), section(3, vec([leb(0)])),
            section(10, vec([body([], times(Results, <<16#41, 0>>))]))]).

functions(N) ->
    module([type([], []), section(3, [leb(N), times(N, <<0>>)]),
            section(10, [leb(N), times(N, <<2, 0, ?END>>)])]).

exports(N) ->
    module([type([], []), section(3, vec([leb(0)])),
            section(7, [leb(N) | [[16, name(I), 0, 0] || I <- lists:seq(1, N)]]),
            section(10, vec([body([], [])]))]).

imports(N) ->
    module([type([], []), section(2, [leb(N) | [[1, "e", 16, name(I), 0, 0] || I <- lists:seq(1, N)]])]).

name(I) -> io_lib:format("~16..0b", [I]).

types(N) -> module([section(1, [leb(N), times(N, [?FUNC, 0, 0])])]).

globals(N) -> module([section(6, [leb(N), times(N, <<?I32, 1, 16#41, 0, ?END>>)])]).

tables(N) -> module([section(4, [leb(N), times(N, <<16#70, 0, 1>>)])]).

%% Active data segments of a byte each.
segments(N) ->
    module([section(5, vec([[0, 1]])), section(11, [leb(N), times(N, <<0, 16#41, 0, ?END, 1, "A">>)])]).

%% Active element segments of a function each, for the largest table.
elements(N) ->
    module([type([], []), section(3, vec([leb(0)])), section(4, vec([[16#70, 0, leb(10_000_000)]])),
            section(9, [leb(N), times(N, <<0, 16#41, 0, ?END, 1, 0>>)]),
            section(10, vec([body([], [])]))]).
