%% @doc Types of {@link wasmtime}: options of servers and pools. The functions are the library's own.
%% @end
%% The options of wasmtime_server and wasmtime_pool: each one's default, check and message, once.
%% Those of the instances inside are checked where instances are made.
-module(wasmtime_pool_options).

-export([server/1, pool/1, request/2, drain/1, module/2, template/1, spec_id/2]).
-export_type([server/0, pool/0, request/0, name/0, source/0]).

-import(wasmtime_options, [fold/4, refuse/2, refuse/3, integer/4, milliseconds/2, one_of/3]).

-type name() :: atom() | {local, atom()} | {global, term()} | {via, module(), term()}.
-type source() :: wasmtime:wasm_module()
                | {file, file:name_all()}
                | {file, file:name_all(), wasmtime:load_file_options() | #{key := fun(() -> binary())}}.
%% A module, or the file of its artifact, which is loaded at each start. The `key' among its options may
%% be a function that returns it: what supervisors log of a child shows its options.
-type telemetry() :: auto | none | fun(([atom()], map(), map()) -> term()).
-type server() :: #{module := source(),
                    name => name(),
                    instance => wasmtime:instance_options(),
                    init => wasmtime:init(),
                    timeout => timeout(),
                    on_trap => keep | stop}.
-type pool() :: #{module := source(),
                  name => name(),
                  instance => wasmtime:instance_options(),
                  size => 1..10000,
                  max_queue => non_neg_integer(),
                  queue_timeout => timeout(),
                  timeout => timeout(),
                  drain_timeout => timeout(),
                  telemetry => telemetry()}.
-type request() :: #{timeout => timeout(), queue_timeout => timeout(), fuel => non_neg_integer()}.

-define(MAX_QUEUE, 1_000_000).

%% @doc The complete options of a server.
%% @private
-spec server(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
server(Opts) ->
    Defaults = #{name => none, module => none, instance => #{}, init => [],
                 timeout => infinity, on_trap => keep},
    taken(instantiate, Opts, fun server_option/3, Defaults).

server_option(init, Value, Acc) ->
    Acc#{init := init(Value)};
server_option(on_trap, Value, Acc) ->
    Acc#{on_trap := one_of(on_trap, Value, [keep, stop])};
server_option(Key, Value, Acc)
  when Key =:= name; Key =:= module; Key =:= instance; Key =:= timeout ->
    common(Key, Value, Acc);
server_option(Key, _, _) ->
    refuse(Key, "unknown option ~0tp of a server", [Key]).

%% @doc The complete options of a pool.
%% @private
-spec pool(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
pool(Opts) ->
    Defaults = #{name => none, module => none, instance => #{}, timeout => infinity,
                 size => erlang:system_info(schedulers_online), queue_timeout => 5_000,
                 drain_timeout => 5_000, telemetry => auto},
    case taken(pool, Opts, fun pool_option/3, Defaults) of
        {ok, #{size := Size} = Complete} -> {ok, maps:merge(#{max_queue => 10 * Size}, Complete)};
        Error -> Error
    end.

pool_option(size, Value, Acc) ->
    Acc#{size := integer(size, Value, 1, 10000)};
pool_option(max_queue, Value, Acc) ->
    Acc#{max_queue => integer(max_queue, Value, 0, ?MAX_QUEUE)};
pool_option(Key, Value, Acc) when Key =:= queue_timeout; Key =:= drain_timeout ->
    Acc#{Key := milliseconds(Key, Value)};
pool_option(telemetry, Value, Acc) when Value =:= auto; Value =:= none; is_function(Value, 3) ->
    Acc#{telemetry := Value};
pool_option(telemetry, Value, _) ->
    refuse(telemetry, "telemetry must be auto, none or a function of three arguments, not ~0tp",
           [Value]);
pool_option(Key, Value, Acc)
  when Key =:= name; Key =:= module; Key =:= instance; Key =:= timeout ->
    common(Key, Value, Acc);
pool_option(Key, _, _) ->
    refuse(Key, "unknown option ~0tp of a pool", [Key]).

%% @doc The complete options of a request; what is not given is the pool's. `run/3' takes fewer.
%% @private
-spec request(run | request, term()) -> {ok, map()} | {error, wasmtime_error:t()}.
request(Sort, Opts) ->
    fold(pool, Opts, fun(Key, Value, Acc) -> request_option(Sort, Key, Value, Acc) end, #{}).

request_option(_, queue_timeout, Value, Acc) ->
    Acc#{queue_timeout => milliseconds(queue_timeout, Value)};
request_option(request, timeout, Value, Acc) ->
    Acc#{timeout => milliseconds(timeout, Value)};
request_option(request, fuel, Value, Acc) ->
    case wasmtime_options:call(#{fuel => Value}) of
        {ok, _} -> Acc#{fuel => Value};
        {error, #{message := Message}} -> refuse(fuel, "~ts", [Message])
    end;
request_option(_, Key, _, _) ->
    refuse(Key, "unknown option ~0tp of a request", [Key]).

%% @doc How long a drain waits.
%% @private
-spec drain(term()) -> {ok, timeout()} | {error, wasmtime_error:t()}.
drain(Value) ->
    fold(pool, #{timeout => Value}, fun(Key, Ms, _) -> milliseconds(Key, Ms) end, infinity).

%% ---- what servers and pools share -----------------------------------------------------------

%% Elixir's child lists are often written with keywords.
options(Pairs) when length(Pairs) >= 0 ->
    try maps:from_list(Pairs) catch error:badarg -> Pairs end;
options(Opts) ->
    Opts.

taken(Class, Opts, Check, Defaults) ->
    case options(Opts) of
        Map when is_map(Map) ->
            required(Class, fold(Class, Map, Check, Defaults));
        _ ->
            {error, wasmtime_error:badarg(Class, options, <<"options must be a map or a list of pairs">>)}
    end.

required(Class, {ok, #{module := none}}) ->
    {error, wasmtime_error:badarg(Class, module, <<"the option module is missing">>)};
required(_, Result) ->
    Result.

common(name, Value, Acc) -> Acc#{name := name(Value)};
common(module, Value, Acc) -> Acc#{module := source(Value)};
common(timeout, Value, Acc) -> Acc#{timeout := milliseconds(timeout, Value)};
common(instance, Value, Acc) when is_map(Value) -> Acc#{instance := Value};
common(instance, _, _) -> refuse(instance, "instance must be a map of instance options").

name(Name) when is_atom(Name), Name =/= undefined -> {local, Name};
name({local, Name}) when is_atom(Name), Name =/= undefined -> {local, Name};
name({global, _} = Name) -> Name;
name({via, Module, _} = Name) when is_atom(Module) ->
    wasmtime_name:registers(Module)
        orelse refuse(name, "~0tp does not register names, as {via, Module, Term} needs", [Module]),
    Name;
name(Name) ->
    refuse(name, "name must be an atom, {local, Atom}, {global, Term} or {via, Module, Term}, "
                 "not ~0tp", [Name]).

source(Mod) when is_reference(Mod) ->
    try wasmtime:module_kind(Mod) of
        _ -> Mod
    catch
        error:badarg -> refuse(module, "module ~0tp is a reference to something else", [Mod])
    end;
source({file, Path} = Source) when is_binary(Path); is_list(Path) -> Source;
source({file, Path, _} = Source) when is_binary(Path); is_list(Path) -> Source;
source(Source) ->
    refuse(module, "module must be a compiled module, {file, Path} or {file, Path, Options}, "
                   "not ~0tp", [Source]).

init(Fun) when is_function(Fun, 1) -> Fun;
init(Calls) when length(Calls) >= 0 -> [init_call(Call) || Call <- Calls];
init(_) -> refuse(init, "init must be a list of calls or a function of the instance").

init_call({Name, Args} = Call) ->
    case wasmtime_text:name(Name) of
        {ok, Bin} when length(Args) >= 0 -> {Bin, Args};
        _ -> refuse(init, "init call ~0tp must be a name or {Name, Args}", [Call])
    end;
init_call(Name) ->
    init_call({Name, []}).

%% @doc What the instances of a pool are made of.
%% @private
-spec template(map()) -> {ok, wasmtime:template()} | {error, wasmtime_error:t()}.
template(#{module := Source, instance := Instance, size := Size}) ->
    case module(pool, Source) of
        {ok, Mod} ->
            case fits(Mod, Size) of
                ok -> wasmtime:prepare(Mod, Instance);
                Error -> Error
            end;
        Error ->
            Error
    end.

%% @doc The module of a source.
%% @private
-spec module(wasmtime_error:class(), source()) ->
          {ok, wasmtime:wasm_module()} | {error, wasmtime_error:t()}.
module(Class, Given) ->
    case fold(Class, #{module => Given}, fun common/3, #{module => none}) of
        {ok, #{module := Source}} -> load(Source);
        Error -> Error
    end.

load({file, Path}) -> wasmtime:deserialize_file(Path);
load({file, Path, Opts}) -> wasmtime:deserialize_file(Path, with_key(Opts));
load(Mod) -> {ok, Mod}.

%% What is no key is refused as such.
with_key(#{key := Key} = Opts) when is_function(Key, 0) ->
    Opts#{key := try Key() catch _:_ -> none end};
with_key(Opts) ->
    Opts.

%% Whether the slots of a module suffice for so many instances at once.
fits(Mod, Size) ->
    case wasmtime:module_options(Mod) of
        #{pooling := #{instances := Slots}} when Slots < Size ->
            Message = wasmtime_error:text("size is ~w, and the module's own pool has ~w instances",
                                          [Size, Slots]),
            {error, wasmtime_error:badarg(pool, size, Message)};
        _ ->
            ok
    end.

%% @doc The id of a child specification.
%% @private
-spec spec_id(module(), term()) -> term().
spec_id(Module, Opts) ->
    case options(Opts) of
        #{name := {local, Name}} -> Name;
        #{name := Name} -> Name;
        _ -> Module
    end.
