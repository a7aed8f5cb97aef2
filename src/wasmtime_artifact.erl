%% @doc Types of {@link wasmtime}: options for artifacts. The functions are the library's own.
%% @end
%% Artifacts: a module to bytes and back, and the options of both. Rule: a key never shows, neither in
%% an error's message nor in the arguments of a stack trace.
-module(wasmtime_artifact).

-include("wasmtime_badarg.hrl").

-export([serialize/2, deserialize/2, deserialize_file/2]).
-export([sealing/1, load/1, load_file/1, key/1, hiding/1]).
-export_type([serialize/0, load/0, load_file/0]).

-import(wasmtime_options, [fold/4, refuse/2, refuse/3, one_of/3]).

-type key() :: binary().
-type serialize() :: #{key => key()}.
-type load() :: #{key => key(),
                  check => full,
                  fuel => boolean(),
                  opt_level => none | speed | speed_and_size,
                  proposals => #{wasmtime_options:proposal() => boolean()},
                  allocator => on_demand | pooling,
                  pooling => wasmtime_options:pooling()}.
-type load_file() :: #{key => key(),
                       check => metadata | full,
                       fuel => boolean(),
                       opt_level => none | speed | speed_and_size,
                       proposals => #{wasmtime_options:proposal() => boolean()},
                       allocator => on_demand | pooling,
                       pooling => wasmtime_options:pooling()}.

%% @doc The artifact of a module, sealed when there is a key.
%% @private
-spec serialize(reference(), term()) -> {ok, binary()} | {error, wasmtime_error:t()}.
serialize(Mod, Opts) ->
    case sealing(Opts) of
        {ok, #{key := Key}} ->
            try hiding(fun() -> wasmtime_nif:module_serialize(Mod, Key) end)
            catch error:badarg -> ?BADARG(module)
            end;
        Error ->
            Error
    end.

%% @doc The complete options of `serialize/2'.
%% @private
-spec sealing(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
sealing(Opts) ->
    fold(compile, Opts, fun serialize_option/3, #{key => undefined}).

serialize_option(key, Value, Acc) -> Acc#{key := key(Value)};
serialize_option(Key, _, _) -> refuse(Key, "unknown option ~0tp", [Key]).

%% @doc Loads an artifact from memory. Every byte is checked whatever `check' says.
%% @private
-spec deserialize(binary(), term()) -> {ok, reference()} | {error, wasmtime_error:t()}.
deserialize(Bin, Opts) ->
    case load(Opts) of
        {ok, Compile, #{key := Key}} ->
            loading(fun() -> wasmtime_nif:module_deserialize(Bin, Compile, Key) end);
        {error, _} = Error ->
            Error
    end.

%% @doc Loads an artifact from its file.
%% @private
-spec deserialize_file(binary(), term()) -> {ok, reference()} | {error, wasmtime_error:t()}.
deserialize_file(Path, Opts) ->
    case load_file(Opts) of
        {ok, Compile, #{key := Key, check := Check}} ->
            loading(fun() -> wasmtime_nif:module_deserialize_file(Path, Compile, Check, Key) end);
        {error, _} = Error ->
            Error
    end.

%% @doc The complete compile options and those of `deserialize/2' alone.
%% @private
-spec load(term()) -> {ok, map(), map()} | {error, wasmtime_error:t()}.
load(Opts) -> load(Opts, full, [full]).

%% @doc The complete compile options and those of `deserialize_file/2' alone.
%% @private
-spec load_file(term()) -> {ok, map(), map()} | {error, wasmtime_error:t()}.
load_file(Opts) -> load(Opts, metadata, [metadata, full]).

load(Opts, Default, Checks) ->
    Take = fun(Key, Value, Acc) -> load_option(Key, Value, Acc, Checks) end,
    {Own, Rest} = apart(Opts),
    case fold(compile, Own, Take, #{key => undefined, check => Default}) of
        {ok, Load} ->
            case wasmtime_options:compile(Rest) of
                {ok, Compile} -> {ok, Compile, Load};
                Error -> Error
            end;
        Error ->
            Error
    end.

apart(Opts) when is_map(Opts) -> {maps:with([key, check], Opts), maps:without([key, check], Opts)};
apart(Other) -> {Other, Other}.

load_option(key, Value, Acc, _) -> Acc#{key := key(Value)};
load_option(check, Value, Acc, Checks) -> Acc#{check := one_of(check, Value, Checks)}.

%% @doc A secret, which no message repeats.
%% @private
-spec key(term()) -> key().
key(Value) when is_binary(Value), Value =/= <<>> -> Value;
key(_) -> refuse(key, "key must be a binary of at least one byte").

loading(Do) -> hiding(fun() -> wasmtime_engine:with_room(Do) end).

%% @doc What Do answers. An exception of native code, and of a library that is not loaded, would show
%% the arguments.
%% @private
-spec hiding(fun(() -> Result)) -> Result.
hiding(Do) ->
    try Do()
    catch error:Reason:Stack -> erlang:raise(error, Reason, [bare(Frame) || Frame <- Stack])
    end.

bare({Module, Function, Args, Where}) when is_list(Args) -> {Module, Function, length(Args), Where};
bare(Frame) -> Frame.
