%% Runs one script of the specification's tests through the API: modules are compiled, instantiated and
%% called as any user would. Rule: a directive passes or is a miss with what came instead; nothing raises.
-module(spec_script).

-export([run/2]).

-record(state, {compile, instance,
                mods = #{},
                %% Where an instance of the script is: {Inst, Prefix of its exports}.
                where = #{}}).

%% `{Line, pass | {miss, Got}}' for every directive. `Opts' are those of `compile/2'.
run({unreadable, Why}, _) ->
    [{0, {miss, {unreadable, Why}}}];
run(Directives, Opts) ->
    State = #state{compile = Opts, instance = options()},
    {Results, End} = lists:mapfoldl(fun step/2, State, Directives),
    destroy(maps:values(End#state.where)),
    Results.

%% Scripts make more instances, and larger memories, than anybody should get by default.
options() ->
    Print = fun(_, Values) when is_list(Values) -> {ok, []} end,
    Names = ["print", "print_i32", "print_i64", "print_f32", "print_f64", "print_i32_f32", "print_f64_f64"],
    wasmtime_test:with_runner(#{imports => maps:from_list([{{"host", Name}, Print} || Name <- Names]),
                                memory_limit => unlimited, max_instances => unlimited,
                                max_tables => unlimited, max_table_elements => unlimited}).

step({Line, Directive}, State) ->
    {Result, Next} = directive(Directive, State),
    {{Line, Result}, Next}.

directive({definition, Source}, State) ->
    case compile(Source, State) of
        {ok, _} -> {pass, State};
        Error -> {{miss, Error}, State}
    end;
directive({module, Id, Source, Setup}, State) ->
    case instantiate(Id, Source, Setup, State) of
        {ok, Inst, Next} -> {pass, place(Id, Inst, Setup, Next)};
        Error -> {{miss, Error}, State#state{where = maps:remove(Id, State#state.where)}}
    end;
directive({invoke, Action}, State) ->
    {expect({ok, any}, act(Action, State)), State};
directive({return, Action, Expected}, State) ->
    {expect({ok, Expected}, act(Action, State)), State};
directive({trap, Action, Text}, State) ->
    {expect({trap, trap_kinds(Text)}, act(Action, State)), State};
directive({exhaustion, Action}, State) ->
    {expect({trap, [stack_overflow]}, act(Action, State)), State};
directive({exception, Action}, State) ->
    {expect({trap, [uncaught_exception]}, act(Action, State)), State};
directive({unlinkable, Module, Text}, State) ->
    {expect(unlinkable(Text), act(Module, State)), State};
directive({Refused, Source, _}, State) when Refused =:= malformed; Refused =:= invalid ->
    {expect({compile, [malformed, invalid]}, compile(Source, State)), State}.

%% ---- what is expected -----------------------------------------------------------------------

expect({ok, any}, {ok, _}) ->
    pass;
expect({ok, Expected}, {ok, Values}) ->
    case spec_value:match(Expected, Values) of
        true -> pass;
        false -> {miss, {ok, Values}}
    end;
expect({Class, Kinds}, {error, #{class := Class, kind := Kind}} = Error) ->
    case lists:member(Kind, Kinds) of
        true -> pass;
        false -> {miss, Error}
    end;
expect(_, Got) ->
    {miss, Got}.

%% The kinds of trap that the specification's words mean.
trap_kinds(<<"out of bounds memory access", _/binary>>) -> [memory_out_of_bounds];
trap_kinds(<<"out of bounds table access", _/binary>>) -> [table_out_of_bounds];
trap_kinds(<<"out of bounds array access", _/binary>>) -> [array_out_of_bounds];
trap_kinds(<<"out of bounds">>) -> [memory_out_of_bounds, table_out_of_bounds];
trap_kinds(<<"undefined", _/binary>>) -> [table_out_of_bounds];
trap_kinds(<<"uninitialized", _/binary>>) -> [indirect_call_to_null];
trap_kinds(<<"indirect call", _/binary>>) -> [bad_signature];
trap_kinds(<<"integer overflow">>) -> [integer_overflow];
trap_kinds(<<"integer divide by zero">>) -> [integer_division_by_zero];
trap_kinds(<<"invalid conversion to integer">>) -> [bad_conversion_to_integer];
trap_kinds(<<"unreachable">>) -> [unreachable];
trap_kinds(<<"unaligned atomic">>) -> [heap_misaligned];
trap_kinds(<<"expected shared memory">>) -> [atomic_wait_non_shared_memory];
trap_kinds(<<"cast failure">>) -> [cast_failure];
trap_kinds(<<"null ", _/binary>>) -> [null_reference];
trap_kinds(<<"call stack exhausted">>) -> [stack_overflow];
trap_kinds(Text) -> [{unknown, Text}].

%% Version 1 looked at the segments before it linked; since version 2 the same is a trap.
unlinkable(<<"unknown import">>) -> {link, [unknown_import, unsupported_import]};
unlinkable(<<"incompatible import type">>) -> {link, [incompatible_import]};
unlinkable(<<"elements segment does not fit">>) -> {trap, [table_out_of_bounds]};
unlinkable(<<"data segment does not fit">>) -> {trap, [memory_out_of_bounds]};
unlinkable(Text) -> {link, [{unknown, Text}]}.

%% ---- what is done ---------------------------------------------------------------------------

act({module, Id, Source, Setup}, State) ->
    case instantiate(Id, Source, Setup, State) of
        {ok, Inst, _} ->
            wasmtime:destroy(Inst),
            {ok, []};
        Error ->
            Error
    end;
act({invoke, Id, Name, Args}, State) ->
    at(Id, State, fun(Inst, Prefix) ->
        wasmtime:call(Inst, [Prefix, Name], spec_value:arguments(Inst, Args), #{timeout => 60_000})
    end);
act({get, Id, Name}, State) ->
    at(Id, State, fun(Inst, Prefix) ->
        case wasmtime:global_get(Inst, [Prefix, Name]) of
            {ok, Value} -> {ok, [Value]};
            Error -> Error
        end
    end).

at(Id, #state{where = Where}, Fun) ->
    case Where of
        #{Id := {Inst, Prefix}} -> Fun(Inst, Prefix);
        #{} -> {no_instance, Id}
    end.

compile({wat, _} = Text, #state{compile = Opts}) -> wasmtime:compile(Text, Opts);
compile(Wasm, #state{compile = Opts}) when is_binary(Wasm) -> wasmtime:compile(Wasm, Opts).

instantiate(_, _, {impossible, Why}, _) ->
    {impossible, Why};
instantiate(Id, Source, Setup, #state{mods = Mods} = State) ->
    case compile(Source, State) of
        {ok, Mod} ->
            Next = State#state{mods = Mods#{Id => Mod}},
            main(Mod, Setup, Next);
        Error ->
            Error
    end.

main(Mod, {main, Links}, State) ->
    start(Mod, Links, State);
main(_, {group, Links, Driver}, State) ->
    case compile(Driver, State) of
        {ok, Main} -> start(Main, Links, State);
        Error -> {driver, Error}
    end.

start(Main, Links, #state{mods = Mods, instance = Opts} = State) ->
    Given = [Id || {_, Id} <- Links, is_integer(Id)],
    case [Id || Id <- Given, not is_map_key(Id, Mods)] of
        [] ->
            Group = [Main | maps:values(maps:with(Given, Mods))],
            Linked = [{Name, linked(Id, Group, State)} || {Name, Id} <- Links],
            case wasmtime:instantiate(Main, Opts#{links => Linked}) of
                {ok, Inst} -> {ok, Inst, State};
                Error -> Error
            end;
        Missing ->
            {no_module, Missing}
    end.

%% A module of the script, or the one that the host gives. A second memory in that would be a proposal.
linked(spectest, Group, #state{compile = Opts}) ->
    Shared = {<<"spectest">>, <<"shared_memory">>, memory},
    Guest = case lists:any(fun(Mod) -> lists:member(Shared, wasmtime:imports(Mod)) end, Group) of
        true -> spectest_shared;
        false -> spectest
    end,
    {ok, Mod} = wasmtime:compile(wasmtime_test:source(Guest), Opts),
    Mod;
linked(Id, _, #state{mods = Mods}) ->
    maps:get(Id, Mods).

%% From here on the members of the group are those of this instance.
place(Id, Inst, {main, _}, #state{where = Where} = State) ->
    State#state{where = Where#{Id => {Inst, ""}}};
place(_, Inst, {group, Links, _}, #state{where = Where} = State) ->
    Members = [Id || {_, Id} <- Links, is_integer(Id)],
    Before = maps:values(maps:with(Members, Where)),
    destroy(Before),
    Here = maps:from_list([{Id, {Inst, [integer_to_list(Id), ":"]}} || Id <- Members]),
    State#state{where = maps:merge(Where, Here)}.

destroy(Places) ->
    [ok = wasmtime:destroy(Inst) || Inst <- lists:usort([Inst || {Inst, _} <- Places])],
    ok.
