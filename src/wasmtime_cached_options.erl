%% @doc Types of {@link wasmtime}: options of a cache. The functions are the library's own.
%% @end
%% What `cached/3' takes, and what the name of an entry is made of. Rule: everything that went into
%% an artifact is in its name; what has no bytes of its own needs the user's `version'.
-module(wasmtime_cached_options).

-export([check/1, parts/3]).
-export_type([options/0, event/0, source/0]).

-import(wasmtime_options, [fold/4, refuse/2, refuse/3, one_of/3]).

-type source() :: wasmtime:source()
                | fun(() -> {ok, wasmtime:source()} | {error, wasmtime_error:t()}).
-type event() :: hit | made | {replaced, wasmtime_error:t()} | {not_stored, wasmtime_error:t()}.
-type options() :: #{key => binary(),
                     check => metadata | full,
                     version => term(),
                     preinit => {wasmtime_options:preinit(), wasmtime:init()},
                     wait => timeout(),
                     report => fun((event()) -> term()),
                     fuel => boolean(),
                     opt_level => none | speed | speed_and_size,
                     proposals => #{wasmtime_options:proposal() => boolean()},
                     allocator => on_demand | pooling,
                     pooling => wasmtime_options:pooling()}.

-define(OWN, [key, check, version, preinit, wait, report]).
%% Long enough for most guests to be compiled, in ms.
-define(WAIT, 60_000).

%% @doc The complete options of the cache, among them `compile' (as given) and `complete'.
%% @private
-spec check(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
check(Opts) when is_map(Opts) ->
    Given = maps:without(?OWN, Opts),
    case {wasmtime_options:compile(Given),
          fold(compile, maps:with(?OWN, Opts), fun option/3, defaults())} of
        {{ok, Complete}, {ok, Own}} -> snapshot(Own#{compile => Given, complete => Complete});
        {{error, _} = Error, _} -> Error;
        {_, Error} -> Error
    end;
check(Opts) ->
    wasmtime_options:compile(Opts).

defaults() ->
    #{key => undefined, check => full, version => none, preinit => undefined, wait => ?WAIT,
      report => fun log/1}.

option(key, Value, Acc) ->
    Acc#{key := wasmtime_artifact:key(Value)};
option(check, Value, Acc) ->
    Acc#{check := one_of(check, Value, [metadata, full])};
option(version, Value, Acc) ->
    Acc#{version := {version, Value}};
option(preinit, {Opts, Init}, Acc) when is_map(Opts) ->
    Acc#{preinit := {Opts, Init}};
option(preinit, _, _) ->
    refuse(preinit, "preinit must be {Options, Init}, as preinit/3 takes them");
option(wait, Value, Acc) ->
    Acc#{wait := wasmtime_options:milliseconds(wait, Value)};
option(report, Value, Acc) when is_function(Value, 1) ->
    Acc#{report := Value};
option(report, Value, _) ->
    refuse(report, "report must be a function of one argument, not ~0tp", [Value]).

%% A set-up runs under the proposals that its module is compiled with, unless it says otherwise.
snapshot(#{preinit := undefined} = Own) ->
    {ok, Own};
snapshot(#{preinit := {Opts, Init}, compile := Compile} = Own) ->
    Full = maps:merge(#{compile => maps:with([opt_level, proposals], Compile)}, Opts),
    case {wasmtime_preinit:options(Full), wasmtime_preinit:plan(Init)} of
        {{ok, Checked}, {ok, Plan}} -> {ok, Own#{preinit := {Full, Init}, made_by => {Checked, Plan}}};
        {{error, _} = Error, _} -> Error;
        {_, Error} -> Error
    end.

%% Somebody should know that a cache does not do its work.
log({replaced, #{message := Message}}) ->
    logger:warning("wasmtime: a cached module was made again: ~ts", [Message]);
log({not_stored, #{message := Message}}) ->
    logger:warning("wasmtime: a module could not be cached: ~ts", [Message]);
log(_) ->
    ok.

%% ---- what an entry is made of ---------------------------------------------------------------

%% @doc Everything that goes into the artifact, as bytes.
%% @private
-spec parts(source(), map(), map()) -> {ok, [binary()]} | {error, wasmtime_error:t()}.
parts(Source, #{complete := Complete, version := Version}, Own) ->
    Shape = maps:with([fuel, opt_level, proposals], Complete),
    SetUp = set_up(Own),
    case {Version, unnamed(Source, SetUp)} of
        {none, What} when What =/= false ->
            Message = wasmtime_error:text("~s has no name of its own: a version must tell when it "
                                          "changes", [What]),
            {error, wasmtime_error:badarg(compile, version, Message)};
        _ ->
            Term = {Shape, Version, plain(SetUp)},
            {ok, [tag(Source), bytes(Source), term_to_binary(Term, [deterministic])]}
    end.

tag(Source) when is_binary(Source) -> <<"wasm">>;
tag({wat, _}) -> <<"wat">>;
tag(_) -> <<"fun">>.

bytes(Source) when is_binary(Source) -> Source;
bytes({wat, Text}) ->
    case wasmtime_text:source(Text) of
        {ok, Bin} -> Bin;
        error -> <<>>
    end;
bytes(_) -> <<>>.

%% Who hears of the set-up does not change what it does.
set_up(#{made_by := {{Compile, Remove, {Complete, Funs}}, Plan}}) ->
    {Compile, Remove, maps:without([host, stream], Complete), Funs, Plan};
set_up(_) ->
    undefined.

%% What goes in without bytes of its own, in words; or false.
unnamed(Source, _) when is_function(Source) -> "a source that is a function";
unnamed(_, undefined) -> false;
unnamed(_, {_, _, Complete, _, _} = SetUp) ->
    case {plain(SetUp), outside(maps:get(wasi, Complete))} of
        {SetUp, false} -> false;
        {SetUp, true} -> "what a set-up reads from directories, files or the environment";
        _ -> "a function, process or reference in preinit"
    end.

%% Whether a set-up sees more of the world than its options say.
outside(undefined) -> false;
outside(#{dirs := [], env := [_ | _] = Env, stdin := Stdin} = Wasi) when is_list(Env) ->
    outside(Wasi#{env := [], stdin := Stdin});
outside(#{dirs := [], env := [], stdin := none}) -> false;
outside(#{dirs := [], env := [], stdin := {binary, _}}) -> false;
outside(_) -> true.

%% A term without what differs from node to node.
plain(Term) when is_function(Term); is_pid(Term); is_reference(Term); is_port(Term) -> '$opaque';
plain([Head | Tail]) -> [plain(Head) | plain(Tail)];
plain(Term) when is_tuple(Term) -> list_to_tuple(plain(tuple_to_list(Term)));
plain(Term) when is_map(Term) -> maps:from_list(plain(maps:to_list(Term)));
plain(Term) -> Term.
